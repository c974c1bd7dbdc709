// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func recordCommand() *cli.Command {
	return &cli.Command{
		Name:      "record",
		Usage:     "trace CUDA memory and write a heap profile or a capture",
		UsageText: "vramprof record [OPTIONS] [-- COMMAND [ARGUMENTS]]",
		Description: "Without -p, --name or a command, every process that uses CUDA is traced. " +
			"Ends on Ctrl-C, after --duration, or when all processes that were asked for by -p or started have ended. " +
			"The profile is for go tool pprof; a capture (FILE.vram) has all events, and grows while it is recorded. A summary is printed.",
		Flags: append(traceFlags(),
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write to `FILE` (default: vramprof-HOST-TIME.pb.gz); FILE.vram is a capture, - is stdout"},
			&cli.StringSliceFlag{Name: "format", Aliases: []string{"f"}, Usage: "`FORMAT` of FILE: pprof or capture; with both, the other one is written beside it"},
			&cli.BoolFlag{Name: "force", Usage: "overwrite FILE"},
			&cli.StringFlag{Name: "oom-dir", Usage: "write a record of each out-of-memory error into `DIR` (default: the folder of FILE)"},
			&cli.BoolFlag{Name: "no-oom", Usage: "write no such records"},
		),
		Action: record,
	}
}

func record(c *cli.Context) error {
	name := defaultName(time.Now())
	path, capturePath, err := recordPaths(c.String("output"), c.StringSlice("format"), name)
	if err != nil {
		return err
	}
	dir, err := oomDir(c, folderOf(path, capturePath))
	if err != nil {
		return err
	}
	s, err := newSession(c)
	if err != nil {
		return err
	}
	defer s.close()
	var out destination
	if path != "" {
		if out, err = openDestination(path, c.Bool("force"), binaryContent); err != nil {
			return err
		}
		defer out.discard()
	}
	var file *captureFile
	if capturePath != "" {
		if file, err = createCapture(c, capturePath); err != nil {
			return err
		}
		defer file.discard()
		s.config.Journal = file.writer
	}
	if isStdout(path, capturePath) {
		s.config.Stdout = os.Stderr // of the command
	}
	if err := s.recordOOMs(c, dir); err != nil {
		return err
	}
	if err := s.open(c); err != nil {
		return err
	}
	snapshot, err := s.traceInto(c.Context, file)
	if err != nil {
		return err
	}
	return s.writeRecord(c, snapshot, out, file, name+profileEnding)
}

// writeRecord writes what was asked for, as far as it can be: out and file may be nil. name is
// for a profile that cannot be written where it should be.
func (s *session) writeRecord(c *cli.Context, snapshot *ledger.Snapshot, out destination, file *captureFile, name string) error {
	var errs []error
	saved := func(d destination, err error) {
		if err == nil {
			sayWrote(c, d)
		}
		errs = append(errs, err)
	}
	summary := besideResult(c, out)
	if file != nil {
		summary = besideResult(c, file)
		saved(file, file.finish(snapshot))
	}
	if out != nil {
		saved(out, out.save(func(w io.Writer) error {
			return report.WriteProfile(w, snapshot, s.tracer)
		}, name))
	}
	errs = append(errs, report.WriteSummary(summary, snapshot, s.tracer, report.Options{}, screen()))
	var first error
	for _, err := range errs {
		if first != nil && err != nil { // one is returned, the others must not be lost
			fmt.Fprintf(c.App.ErrWriter, "vramprof: %s\n", untrusted.Clean(err.Error()))
		} else if err != nil {
			first = err
		}
	}
	if failed, _ := c.App.Metadata[failedKey].(error); first == nil && failed == nil {
		return s.commandStatus(c.Context)
	}
	return first
}
