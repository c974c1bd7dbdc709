// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/report"
)

func recordCommand() *cli.Command {
	return &cli.Command{
		Name:      "record",
		Usage:     "trace CUDA memory and write a heap profile",
		UsageText: "vramprof record [OPTIONS] [-- COMMAND [ARGUMENTS]]",
		Description: "Without -p, --name or a command, every process that uses CUDA is traced. " +
			"Ends on Ctrl-C, after --duration, or when all processes that were asked for by -p or started have ended. " +
			"The profile is for go tool pprof; a summary is printed.",
		Flags: append(traceFlags(),
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write the profile to `FILE` (default: vramprof-HOST-TIME.pb.gz)"},
			&cli.StringSliceFlag{Name: "format", Aliases: []string{"f"}, Usage: "`FORMAT` of the profile: pprof", Value: cli.NewStringSlice("pprof")},
			&cli.BoolFlag{Name: "force", Usage: "overwrite FILE"},
			&cli.StringFlag{Name: "oom-dir", Usage: "write a record of each out-of-memory error into `DIR` (default: the folder of FILE)"},
			&cli.BoolFlag{Name: "no-oom", Usage: "write no such records"},
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
	name := defaultOutput(time.Now())
	path := c.String("output")
	if path == "" {
		path = name
	}
	if path == "-" {
		return usageError{errors.New("the profile cannot be written to stdout (-o takes a file)")}
	}
	dir, err := oomDir(c, filepath.Dir(path))
	if err != nil {
		return err
	}
	s, err := newSession(c)
	if err != nil {
		return err
	}
	defer s.close()
	out, err := createOutput(path, c.Bool("force"))
	if err != nil {
		return err
	}
	defer out.discard()
	if err := s.recordOOMs(c, dir); err != nil {
		return err
	}
	if err := s.open(c); err != nil {
		return err
	}
	snapshot, err := s.trace(c.Context)
	if err != nil {
		return err
	}
	saveErr := out.save(func(w io.Writer) error {
		return report.WriteProfile(w, snapshot, s.tracer, report.ProfileOptions{})
	}, name)
	if saveErr == nil {
		fmt.Fprintf(c.App.ErrWriter, "vramprof: wrote %s\n", path)
	}
	err = report.WriteSummary(c.App.Writer, snapshot, s.tracer, report.SummaryOptions{Width: width()})
	if saveErr != nil {
		return saveErr
	}
	return err
}

func defaultOutput(now time.Time) string {
	host, err := os.Hostname()
	if err != nil || host == "" || strings.ContainsAny(host, "/\x00") {
		host = "host"
	}
	return fmt.Sprintf("vramprof-%s-%s.pb.gz", host, now.Format("20060102-150405"))
}
