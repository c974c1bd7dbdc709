// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/duration"
	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/output"
	"github.com/vramprof/vramprof/internal/source"
	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/report/replay"
	"github.com/vramprof/vramprof/report/steps"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func leaksCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:        "leaks",
		Usage:       "find lines of code that leak, and list who holds memory",
		UsageText:   "vramprof leaks [OPTIONS] [FILE | -- COMMAND [ARGUMENTS]]",
		Description: "Traces like record, or reads FILE, a capture. Reports which lines grow without end, with your own code of their stack traces, and lists the sites that hold most memory. With --fail-on-leak, a leak exits with status 3.",
		Flags: append(append(traceFlagsWith("show all: library frames, tables, holders and all notes; while tracing, also report what is probed"), mineFlag(), connectFlag(insteadOfTracing), momentFlags()[0], readFlags()[0]),
			&cli.IntFlag{Name: "top", Aliases: []string{"T"}, Usage: "list at most `N` lines that grow and sites (default: as many as fit one screen, with -v 10)"},
			&cli.StringFlag{Name: "older", Usage: "only list sites with memory older than `AGE`"},
			&cli.BoolFlag{Name: "json", Usage: "write JSON"},
			&cli.StringFlag{Name: "oom-dir", Usage: "write a record of each out-of-memory error into `DIR`"},
			&cli.BoolFlag{Name: "fail-on-leak", Usage: "exit with status 3 if a line leaks, or with --older if memory is that old"},
			&cli.BoolFlag{Name: "unfreed", Usage: "with --fail-on-leak: also if a process ended without freeing its memory"},
		),
		Action: p.leaks,
	}
}

func (p *program) leaks(c *cli.Context) error {
	older, err := duration.Parse(c.String("older"))
	if err != nil {
		return fault.Usage(fmt.Errorf("--older: %w", err))
	}
	if c.IsSet("top") && c.Int("top") < 1 {
		return fault.Usage(errors.New("--top must be at least 1"))
	}
	if c.Bool("unfreed") && !c.Bool("fail-on-leak") {
		return fault.Usage(errors.New("--unfreed needs --fail-on-leak"))
	}
	dir, err := oomDir(c, "")
	if err != nil {
		return err
	}
	from, err := p.leaksSource(c, dir)
	if err != nil {
		return err
	}
	defer from.done()
	snapshot, stacks := from.snapshot, from.stacks
	options := report.Options{Top: c.Int("top"), Older: older, Steps: from.steps}
	switch {
	case c.Bool("json"):
		err = json.WriteLeaks(c.App.Writer, snapshot, stacks, options)
	case c.Bool("verbose"):
		err = text.WriteLeaks(c.App.Writer, snapshot, stacks, options, terminal.Screen())
	default:
		err = text.WriteLeaksBrief(c.App.Writer, snapshot, stacks, options, terminal.Screen())
	}
	if err != nil {
		return err
	}
	if !c.Bool("fail-on-leak") {
		return nil
	}
	if n := leakCount(snapshot, stacks, options, c.Bool("unfreed")); n > 0 {
		return fault.Status(exitLeak, fmt.Errorf("lines that leak: %d", n))
	}
	return nil
}

// leaksFrom is where the leaks are looked for.
type leaksFrom struct {
	snapshot *ledger.Snapshot
	stacks   callstack.Stacks
	steps    *steps.Session
	done     func() // releases what stacks need
}

// leaksSource traces now, asks vramprof serve, or reads the capture that the command line names.
func (p *program) leaksSource(c *cli.Context, oomDir string) (from leaksFrom, err error) {
	if connecting(c) {
		return leaksRemote(c)
	}
	if path := c.Args().First(); c.Args().Len() == 1 && !p.afterDashes(c) && (isFile(path) || source.IsArchive(path) || strings.HasSuffix(path, output.Capture.Suffix)) {
		at, err := source.ParseMoment(c.String("at"))
		if err != nil {
			return from, fault.Usage(err)
		}
		r, done, err := p.openSource(c, &at)
		if err != nil {
			return from, err
		}
		from.stacks, from.done = mine(c, r), done
		if from.snapshot, err = source.SnapshotAt(r, at); err == nil {
			from.steps, err = replay.Steps(r, from.snapshot, replay.BriefEvents)
		}
		if err != nil {
			done()
		}
		return from, err
	}
	if err := withoutCapture(c, "", "at"); err != nil {
		return from, err
	}
	s, err := p.newSession(c)
	if err != nil {
		return from, err
	}
	s.FindSteps()
	if err = s.RecordOOMs(oomDir); err == nil {
		s.Trace.Stdout = os.Stderr // stdout has only the result, which may be JSON
		err = s.Open(c.Context)
	}
	if err == nil {
		from.snapshot, err = s.Run(c.Context)
	}
	if err != nil {
		s.Close()
		return from, err
	}
	from.stacks, from.steps, from.done = s.Stacks(), s.Steps(), s.Close
	return from, nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}

// leakCount counts what --fail-on-leak looks for: lines that leak, and with --older all sites with
// memory of that age. Memory that a process holds when it ends is not a leak by itself, just as
// reachable memory is none for LeakSanitizer and Valgrind: most programs leave their weights and
// caches to the driver. --unfreed counts it, like the leak check of compute-sanitizer.
func leakCount(s *ledger.Snapshot, stacks callstack.Stacks, o report.Options, unfreed bool) int {
	left := 0
	for _, x := range report.Leaks(s, o) {
		if o.Older > 0 || unfreed && s.Processes[x.Process].End != 0 {
			left++
		}
	}
	return max(left, report.Judge(s, stacks).Leaking())
}
