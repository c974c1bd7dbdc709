// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func leaksCommand() *cli.Command {
	return &cli.Command{
		Name:        "leaks",
		Usage:       "trace CUDA memory and list what was not freed",
		UsageText:   "vramprof leaks [OPTIONS] [FILE | -- COMMAND [ARGUMENTS]]",
		Description: "Traces like record, or reads FILE, a capture; says which lines grow without end, and lists the sites that hold memory, largest first. Exit status 3 says that --fail-on-leak found one.",
		Flags: append(append(traceFlags(), momentFlags()[0], readFlags()[0]),
			&cli.IntFlag{Name: "top", Aliases: []string{"T"}, Value: 10, Usage: "list `N` sites (default: 10)"},
			&cli.StringFlag{Name: "older", Usage: "only list sites with memory older than `AGE`"},
			&cli.BoolFlag{Name: "json", Usage: "write JSON"},
			&cli.StringFlag{Name: "oom-dir", Usage: "write a record of each out-of-memory error into `DIR`"},
			&cli.BoolFlag{Name: "fail-on-leak", Usage: "exit with status 3 when a line leaks, or with --older when memory is that old"},
			&cli.BoolFlag{Name: "unfreed", Usage: "with --fail-on-leak: also for memory that a process had not freed when it ended"},
		),
		Action: leaks,
	}
}

func leaks(c *cli.Context) error {
	older, err := parseDuration(c.String("older"))
	if err != nil {
		return usageError{fmt.Errorf("--older: %w", err)}
	}
	if c.Int("top") < 1 {
		return usageError{errors.New("--top must be at least 1")}
	}
	if c.Bool("unfreed") && !c.Bool("fail-on-leak") {
		return usageError{errors.New("--unfreed is for --fail-on-leak")}
	}
	dir, err := oomDir(c, "")
	if err != nil {
		return err
	}
	snapshot, stacks, done, err := leaksSource(c, dir)
	if err != nil {
		return err
	}
	defer done()
	options := report.Options{Top: c.Int("top"), Older: older}
	if c.Bool("json") {
		err = report.WriteLeaksJSON(c.App.Writer, snapshot, stacks, options)
	} else {
		err = report.WriteLeaks(c.App.Writer, snapshot, stacks, options, screen())
	}
	if err != nil {
		return err
	}
	if !c.Bool("fail-on-leak") {
		return nil
	}
	if n := leakCount(snapshot, stacks, options, c.Bool("unfreed")); n > 0 {
		return codedError{fmt.Errorf("lines that leak: %d", n), exitLeak}
	}
	return nil
}

// leaksSource traces, or reads a capture.
func leaksSource(c *cli.Context, oomDir string) (*ledger.Snapshot, callstack.Stacks, func(), error) {
	if path := c.Args().First(); c.Args().Len() == 1 && !afterDashes(c) && isFile(path) {
		at, err := parseMoment(c.String("at"))
		if err != nil {
			return nil, nil, nil, usageError{err}
		}
		r, done, err := openSource(c)
		if err != nil {
			return nil, nil, nil, err
		}
		snapshot, err := snapshotAt(r, at)
		if err != nil {
			done()
		}
		return snapshot, r, done, err
	}
	if c.IsSet("at") {
		return nil, nil, nil, usageError{errors.New("--at is for a capture")}
	}
	s, err := newSession(c)
	if err != nil {
		return nil, nil, nil, err
	}
	if err = s.recordOOMs(c, oomDir); err == nil {
		s.config.Stdout = os.Stderr // stdout is for the result, which may be JSON
		err = s.open(c)
	}
	var snapshot *ledger.Snapshot
	if err == nil {
		snapshot, err = s.trace(c.Context)
	}
	if err != nil {
		s.close()
		return nil, nil, nil, err
	}
	return snapshot, s.tracer, s.close, nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}

// leakCount counts what --fail-on-leak is about: what grows without end, and with --older all memory of that age. What a process
// holds at its end is no leak by itself, as for LeakSanitizer and Valgrind what is still reachable is none: most programs leave their
// weights and caches to the driver. Who frees all asks for it with --unfreed, as with the leak check of compute-sanitizer.
func leakCount(s *ledger.Snapshot, stacks callstack.Stacks, o report.Options, unfreed bool) int {
	left := 0
	for _, x := range report.Leaks(s, o) {
		if o.Older > 0 || unfreed && s.Processes[x.Process].End != 0 {
			left++
		}
	}
	return max(left, report.Leaking(s, stacks))
}
