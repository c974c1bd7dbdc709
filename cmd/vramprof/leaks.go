// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/report"
)

func leaksCommand() *cli.Command {
	return &cli.Command{
		Name:        "leaks",
		Usage:       "trace CUDA memory and list what was not freed, largest first",
		ArgsUsage:   " ",
		Description: "Ends like record. Exit status 3 says that --fail-on-leak found something.",
		Flags: append(traceFlags(),
			&cli.IntFlag{Name: "top", Aliases: []string{"T"}, Value: 10, Usage: "list `N` sites"},
			&cli.StringFlag{Name: "older", Usage: "only count memory that is older than `AGE`"},
			&cli.BoolFlag{Name: "json", Usage: "write JSON"},
			&cli.BoolFlag{Name: "fail-on-leak", Usage: "exit with status 3 when there is a leak"},
		),
		Action: leaks,
	}
}

func leaks(c *cli.Context) error {
	older, err := parseDuration(c.String("older"))
	if err != nil {
		return usageError{err}
	}
	if c.Int("top") < 1 {
		return usageError{errors.New("--top must be at least 1")}
	}
	s, err := open(c, c.Args().Slice())
	if err != nil {
		return err
	}
	defer s.close()
	snapshot, err := s.trace(c.Context)
	if err != nil {
		return err
	}
	options := report.LeaksOptions{Top: c.Int("top"), Older: older.Truncate(time.Nanosecond), Width: width()}
	write := report.WriteLeaks
	if c.Bool("json") {
		write = report.WriteLeaksJSON
	}
	if err := write(c.App.Writer, snapshot, s.tracer, options); err != nil {
		return err
	}
	if c.Bool("fail-on-leak") && len(report.Leaks(snapshot, options)) > 0 {
		return codedError{errors.New("memory is leaked"), exitLeak}
	}
	return nil
}
