// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/output"
	"github.com/vramprof/vramprof/internal/remote"
	"github.com/vramprof/vramprof/internal/session"
	"github.com/vramprof/vramprof/internal/snapshot"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/archive"
	"github.com/vramprof/vramprof/tracer/holders"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func snapshotCommand() *cli.Command {
	return &cli.Command{
		Name:      "snapshot",
		Usage:     "write PyTorch's memory snapshot of a running process, for memory_viz",
		UsageText: "vramprof snapshot -p PID [-o FILE]",
		Description: "Reads PyTorch's CUDA allocator in the memory of a running process, which is neither stopped nor changed, and writes each segment and block " +
			"as torch.cuda.memory._dump_snapshot does: for https://pytorch.org/memory_viz, torch/cuda/_memory_viz.py and vramprof report. It sets no probes. " +
			"The owner of the process may run it. The frames of a block are the path that keeps it, or its stack trace where a running vramprof serve has it.",
		Flags: []cli.Flag{
			pidFlag("read process `PID`"),
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write to `FILE` (default: vramprof-HOST-TIME.pickle); - is stdout"},
			&cli.BoolFlag{Name: "force", Usage: "overwrite FILE"},
			&cli.StringFlag{Name: "holders", Value: "on", Usage: "look for who keeps each block: `WHEN` is on or off"},
			connectFlag("take stack traces of tensors from the running vramprof serve (default: if it runs)"),
			&cli.BoolFlag{Name: "no-names", Usage: "read classes of holders, not names of variables, attributes and keys"},
		},
		Action: writeSnapshot,
	}
}

func writeSnapshot(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	if !c.IsSet("pid") {
		return fault.Usage(errors.New("snapshot needs a process: -p PID (vramprof ps lists them)"))
	}
	pid := pidOf(c)
	look, err := holdersWalk(c, pid)
	if err != nil {
		return err
	}
	if err := session.CheckProcess(pid); err != nil {
		return err
	}
	ask, err := stacksOf(c, pid)
	if err != nil {
		return err
	}
	name := output.DefaultName(time.Now()) + output.Snapshot.Suffix
	out, err := output.Snapshot.Open(cmp.Or(c.String("output"), name), c.Bool("force"))
	if err != nil {
		return err
	}
	defer out.Discard()
	confine(c, session.Reading{Writes: folders(c), Force: c.Bool("force")})
	said := awaitRead(c, pid)
	s, err := snapshot.Take(pid, ask, look)
	if said(); err != nil {
		return err
	}
	if err := out.Save(s.Write, name); err != nil {
		return err
	}
	if err := s.Summary(c.App.ErrWriter); err != nil {
		return err
	}
	sayWrote(c, out)
	return nil
}

// stacksOf returns how a running vramprof serve is asked for stack traces, nil if none runs.
// Without --connect, it need not trace the process.
func stacksOf(c *cli.Context, pid uint32) (snapshot.Ask, error) {
	path := cmp.Or(c.Generic("connect").(*socketValue).path, remote.DefaultSocket)
	if !connecting(c) && !remote.Listens(path) {
		return nil, nil
	}
	r := remote.New(path, version, nil, archive.Filter{})
	_, err := r.TensorBlocks(c.Context, pid)
	if mark, marked := fault.Of(err); !connecting(c) && marked && mark.Kind == fault.NoProcess {
		return nil, nil
	}
	if connecting(c) && err != nil {
		return nil, err
	}
	return func() ([]ledger.TensorBlock, callstack.Stacks, error) {
		list, err := r.TensorBlocks(c.Context, pid)
		return list, r, err
	}, nil
}

// holdersWalk returns how holders are looked for, nil with --holders=off.
func holdersWalk(c *cli.Context, pid uint32) (snapshot.Walk, error) {
	switch when := c.String("holders"); when {
	case "off":
		return nil, nil
	case "on":
		return func(blocks []holders.Range) (*holders.Result, error) {
			return walk(c.Context, pid, holders.Options{Addresses: blocks, HideNames: c.Bool("no-names")})
		}, nil
	default:
		return nil, fault.Usage(fmt.Errorf("--holders: %q is neither on nor off", when))
	}
}
