// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/report"
)

func leaksCommand() *cli.Command {
	return &cli.Command{
		Name:        "leaks",
		Usage:       "trace CUDA memory and list what was not freed",
		UsageText:   "vramprof leaks [OPTIONS] [-- COMMAND [ARGUMENTS]]",
		Description: "Traces like record, and lists the sites that hold memory, largest first. Exit status 3 says that --fail-on-leak found one.",
		Flags: append(traceFlags(),
			&cli.IntFlag{Name: "top", Aliases: []string{"T"}, Value: 10, Usage: "list `N` sites (default: 10)"},
			&cli.StringFlag{Name: "older", Usage: "only list sites with memory older than `AGE`"},
			&cli.BoolFlag{Name: "json", Usage: "write JSON"},
			&cli.StringFlag{Name: "oom-dir", Usage: "write a record of each out-of-memory error into `DIR`"},
			&cli.BoolFlag{Name: "fail-on-leak", Usage: "exit with status 3 when there is a leak"},
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
	dir, err := oomDir(c, "")
	if err != nil {
		return err
	}
	s, err := newSession(c)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.recordOOMs(c, dir); err != nil {
		return err
	}
	s.config.Stdout = os.Stderr // stdout is for the result, which may be JSON
	if err := s.open(c); err != nil {
		return err
	}
	snapshot, err := s.trace(c.Context)
	if err != nil {
		return err
	}
	options := report.LeaksOptions{Top: c.Int("top"), Older: older, Width: width()}
	write := report.WriteLeaks
	if c.Bool("json") {
		write = report.WriteLeaksJSON
	}
	if err := write(c.App.Writer, snapshot, s.tracer, options); err != nil {
		return err
	}
	if n := len(report.Leaks(snapshot, options)); n > 0 && c.Bool("fail-on-leak") {
		return codedError{fmt.Errorf("sites with memory that was not freed: %d", n), exitLeak}
	}
	return nil
}
