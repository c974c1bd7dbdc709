// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/report"
)

func recordCommand() *cli.Command {
	return &cli.Command{
		Name:      "record",
		Usage:     "trace CUDA memory and write a heap profile",
		ArgsUsage: "[-- COMMAND [ARGUMENTS]]",
		Description: "Without -p, --name or a command, every process that uses CUDA is traced.\n" +
			"Ends on Ctrl-C, after --duration, or when all processes asked for by -p or started have ended.",
		Flags: append(traceFlags(),
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write the profile to `FILE` (default vramprof-HOST-TIME.pb.gz)"},
			&cli.StringSliceFlag{Name: "format", Aliases: []string{"f"}, Usage: "`FORMAT` of the profile: pprof", Value: cli.NewStringSlice("pprof")},
			&cli.BoolFlag{Name: "force", Usage: "overwrite FILE"},
		),
		Action: record,
	}
}

func record(c *cli.Context) error {
	for _, format := range c.StringSlice("format") {
		if format != "pprof" {
			return usageError{fmt.Errorf("there is no format %q (formats: pprof)", format)}
		}
	}
	command := c.Args().Slice()
	path := c.String("output")
	if path == "" {
		path = defaultOutput(time.Now())
	}
	out, err := createOutput(path, c.Bool("force"))
	if err != nil {
		return err
	}
	defer out.discard()
	s, err := open(c, command)
	if err != nil {
		return err
	}
	defer s.close()
	snapshot, err := s.trace(c.Context)
	if err != nil {
		return err
	}
	if err := report.WriteProfile(out, snapshot, s.tracer, report.ProfileOptions{}); err != nil {
		return err
	}
	if err := out.commit(); err != nil {
		return err
	}
	fmt.Fprintf(c.App.ErrWriter, "vramprof: wrote %s\n", path)
	return report.WriteSummary(c.App.Writer, snapshot, s.tracer, report.SummaryOptions{Width: width()})
}

func defaultOutput(now time.Time) string {
	host, err := os.Hostname()
	if err != nil || host == "" || strings.ContainsAny(host, "/\x00") {
		host = "host"
	}
	return fmt.Sprintf("vramprof-%s-%s.pb.gz", host, now.Format("20060102-150405"))
}

var errExists = errors.New("it exists (--force overwrites it)")
