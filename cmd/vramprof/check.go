// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/check"
	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/session"
	"github.com/vramprof/vramprof/internal/terminal"
)

func checkCommand() *cli.Command {
	return &cli.Command{
		Name:        "check",
		Usage:       "report whether vramprof can trace here, or what is missing",
		UsageText:   "vramprof check [-v | -p PID | --libraries [--json]]",
		Description: "Exits with status 4 if something is missing.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"},
				Usage: "list which functions can be traced in each CUDA library of this machine"},
			pidFlag("only report what tracing process `PID` would meet: functions that it overwrote in its memory, and what an earlier tracer left"),
			&cli.BoolFlag{Name: "libraries",
				Usage: "only list the CUDA libraries: where the probe of each function goes, its first bytes, and what the driver's cuGetProcAddress returns"},
			&cli.BoolFlag{Name: "json", Usage: "with --libraries: write JSON"},
		},
		Action: checkHost,
	}
}

func checkHost(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	out, columns := c.App.Writer, terminal.Width()
	switch {
	case c.IsSet("pid") && (c.Bool("libraries") || c.Bool("json") || c.Bool("verbose")):
		return fault.Usage(errors.New("--pid stands alone (vramprof check -p PID)"))
	case c.IsSet("pid"):
		if err := session.CheckProcess(pidOf(c)); err != nil {
			return err
		}
		confine(c, session.Reading{})
		return check.Process(out, pidOf(c), columns)
	case c.Bool("libraries"):
		return check.Libraries(c.Context, out, c.Bool("json"), columns)
	case c.Bool("json"):
		return fault.Usage(errors.New("--json needs --libraries (vramprof check --libraries --json)"))
	}
	return check.Host(c.Context, out, c.Bool("verbose"), columns)
}
