// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/comparison"
	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/compare"
	"github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/report/text"
)

func compareCommand() *cli.Command {
	return &cli.Command{
		Name:      "compare",
		Usage:     "put ranks, captures or moments side by side, and flag outliers",
		UsageText: "vramprof compare [OPTIONS] FILE...",
		Description: "Each FILE is a capture, a memory snapshot of PyTorch, or a profile that vramprof wrote. One capture is compared by its processes, such as the ranks of a training; " +
			"several files by file. A row is a line of your own code, a column a process or file. FILE@MOMENT is a moment of a capture: run.vram@5m, run.vram@peak. " +
			"By default, the ends are compared, or where a process ended before its session, the peaks.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "at", Usage: "compare the `MOMENT`: 12m30s, peak (each column's own), end"},
			&cli.StringFlag{Name: "by", Usage: "a column for each `WHAT`: process or file (default: process for one file)"},
			&cli.IntFlag{Name: "top", Aliases: []string{"T"}, Value: 10, Usage: "list at most `N` lines (default: 10)"},
			&cli.BoolFlag{Name: "json", Usage: "write JSON"},
			mineFlag(), readFlags()[0],
		},
		Action: compareFiles,
	}
}

func compareFiles(c *cli.Context) error {
	by, names := c.String("by"), c.Args().Slice()
	switch {
	case len(names) == 0:
		return fault.Usage(errors.New("name captures to compare, or one of several processes (vramprof compare rank0.vram rank1.vram)"))
	case c.IsSet("by") && by != comparison.ByProcess && by != comparison.ByFile:
		return fault.Usage(fmt.Errorf("--by is process or file, not %q", by))
	case c.Int("top") < 1:
		return fault.Usage(errors.New("--top must be at least 1"))
	case by == "" && len(names) == 1:
		by = comparison.ByProcess
	case by == "":
		by = comparison.ByFile
	}
	columns, err := comparison.Columns(names, comparison.Options{By: by, At: c.String("at"), Given: c.IsSet("at"), Mine: mineOf(c), Files: sourceOptions(c)})
	if err != nil {
		return err
	}
	compared := compare.New(columns)
	if c.Bool("json") {
		return json.WriteComparison(c.App.Writer, compared)
	}
	return text.WriteComparison(c.App.Writer, compared, report.Options{Top: c.Int("top")}, terminal.Screen())
}
