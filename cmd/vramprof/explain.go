// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/arenas"
	"github.com/vramprof/vramprof/internal/explain"
	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/kvuse"
	"github.com/vramprof/vramprof/internal/session"
	"github.com/vramprof/vramprof/internal/source"
	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/report"
	reportjson "github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/report/purpose"
	"github.com/vramprof/vramprof/report/replay"
	"github.com/vramprof/vramprof/report/steps"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/nvml"
)

func explainCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "explain",
		Usage:     "show what GPU memory is for: weights, activations, cache, libraries",
		UsageText: "vramprof explain -p PID | FILE.vram [--at MOMENT] [--json]",
		Description: "Divides what each process uses on each GPU by purpose: weights, gradients, the optimizer's state, buffers, activations, inputs, KV cache, workspaces, PyTorch's cache, other libraries, the context. " +
			"The rows add up to NVML's figure. With -p, the memory of a running process is read now: no probes are set, and the owner of the process may run it. " +
			"A capture also has the stack traces of what was allocated since the attach, and other moments (--at peak).",
		Flags: slices.Concat([]cli.Flag{
			pidFlag("read process `PID` now"),
			&cli.StringFlag{Name: "at", Usage: "show the `MOMENT` of a capture (default: the end, or the peak if all processes have ended by then)"},
			&cli.BoolFlag{Name: "json", Usage: "write JSON"},
			&cli.BoolFlag{Name: "engine-metrics", Usage: "with -p, ask the ports that the process or a parent listens on, on loopback, for the /metrics of vLLM, SGLang or llama.cpp: how much of the KV cache is used"},
			&cli.BoolFlag{Name: "no-names", Usage: "with -p, read classes of holders, not names of variables, attributes and keys"},
			mineFlag(),
		}, readFlags()),
		Action: p.explain,
	}
}

func (p *program) explain(c *cli.Context) error {
	if c.IsSet("pid") == c.Args().Present() {
		return fault.Usage(errors.New("explain needs a process or a capture: vramprof explain -p PID, vramprof explain FILE.vram"))
	}
	if c.IsSet("pid") {
		if err := withoutCapture(c, "", "at"); err != nil {
			return err
		}
		return explainProcess(c, pidOf(c))
	}
	for _, flag := range []string{"no-names", "engine-metrics"} {
		if c.IsSet(flag) {
			return fault.Usage(fmt.Errorf("--%s is only for -p, and %q is a capture", flag, c.Args().First()))
		}
	}
	at, err := source.ParseMoment(c.String("at"))
	if err != nil {
		return fault.Usage(err)
	}
	r, done, err := p.openSource(c, &at)
	if err != nil {
		return err
	}
	defer done()
	s, err := source.SnapshotAt(r, at)
	var peak *ledger.Snapshot
	if err == nil && !c.IsSet("at") && report.AllEnded(s) {
		peak, err = source.SnapshotAt(r, source.Peak())
		s = peak
	}
	if err != nil {
		return err
	}
	found, err := replay.Steps(r, s, steps.MaxEvents)
	if err != nil {
		return err
	}
	return writeExplain(c, s, mine(c, r), nil, report.Options{Steps: found, Peak: peak})
}

func explainProcess(c *cli.Context, pid uint32) error {
	if err := session.CheckProcess(pid); err != nil {
		return err
	}
	said := awaitRead(c, pid)
	var ports *kvuse.Ports
	var unknown error
	if c.Bool("engine-metrics") {
		ports, unknown = kvuse.Connect(c.Context, pid)
	}
	var use *purpose.Use
	s, err := explain.Process(c.Context, pid, c.Bool("no-names"), func(driver *nvml.Driver) {
		confine(c, session.Reading{Driver: driver})
		if ports != nil {
			use, unknown = ports.Ask(c.Context)
		}
	})
	if said(); err != nil {
		return err
	}
	for _, w := range s.Warnings {
		fmt.Fprintln(c.App.ErrWriter, "vramprof:", w)
	}
	if unknown != nil {
		fmt.Fprintln(c.App.ErrWriter, "vramprof: no metrics of an inference server:", unknown)
	}
	more := purpose.More{PID: pid, Use: use}
	if more.Arenas, err = arenas.Read(c.Context, pid); err != nil {
		fmt.Fprintln(c.App.ErrWriter, "vramprof: not all arenas were read:", err)
	}
	return writeExplain(c, s, nil, &more, report.Options{})
}

func writeExplain(c *cli.Context, s *ledger.Snapshot, st callstack.Stacks, more *purpose.More, o report.Options) error {
	var out io.Writer = c.App.Writer
	if c.Bool("json") {
		return reportjson.WriteExplain(out, s, st, more, o)
	}
	return text.WriteExplain(out, s, st, more, o, terminal.Screen())
}
