// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/output"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func recordCommand() *cli.Command {
	return &cli.Command{
		Name:      "record",
		Usage:     "trace CUDA memory and write a heap profile or a capture",
		UsageText: "vramprof record [OPTIONS] [-- COMMAND [ARGUMENTS]]",
		Description: "By default, every CUDA process is traced. " +
			"Tracing stops on Ctrl-C, after --duration, or when all processes selected by -p, or the command, have ended. " +
			"A second Ctrl-C aborts, or skips the walks for holders at the end. The result is a profile for go tool pprof, or a capture (FILE.vram), which holds all events of the session. A summary is printed.",
		Flags: append(append(traceFlags(), mineFlag()),
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write to `FILE` (default: vramprof-HOST-TIME.pb.gz); FILE.vram is a capture, - is stdout"},
			&cli.StringSliceFlag{Name: "format", Aliases: []string{"f"}, Usage: "`FORMAT` of FILE: " + output.Recorded.Choice() + "; with both, the other file is written beside it"},
			&cli.BoolFlag{Name: "force", Usage: "overwrite FILE"},
			&cli.StringFlag{Name: "oom-dir", Usage: "write a record of each out-of-memory error into `DIR` (default: the folder of FILE)"},
			&cli.BoolFlag{Name: "no-oom", Usage: "write no records of out-of-memory errors"},
		),
		Action: record,
	}
}

func record(c *cli.Context) error {
	name := output.DefaultName(time.Now())
	path, capturePath, err := output.Paths(c.String("output"), c.StringSlice("format"), name)
	if err != nil {
		return usageError{err}
	}
	dir, err := oomDir(c, output.FolderOf(path, capturePath))
	if err != nil {
		return err
	}
	s, err := newSession(c)
	if err != nil {
		return err
	}
	defer s.close()
	var out output.Destination
	if path != "" {
		if out, err = output.Pprof.Open(path, c.Bool("force")); err != nil {
			return err
		}
		defer out.Discard()
	}
	var file *output.CaptureFile
	if capturePath != "" {
		if file, err = createCapture(c, capturePath); err != nil {
			return err
		}
		defer file.Discard()
		s.config.Capture = file.Writer
	}
	if output.IsStdout(path, capturePath) {
		s.config.Stdout = os.Stderr // the command's
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
	return s.writeRecord(c, snapshot, out, file, name+output.Pprof.Suffix)
}

// writeRecord writes the profile, the capture and the summary, and goes on after errors; out and
// file may be nil. name is the profile's name in the folder for temporary files if out fails.
func (s *session) writeRecord(c *cli.Context, snapshot *ledger.Snapshot, out output.Destination, file *output.CaptureFile, name string) error {
	var errs []error
	saved := func(d output.Destination, err error) {
		if err == nil {
			sayWrote(c, d)
		}
		errs = append(errs, err)
	}
	summary, stacks := besideResult(c, out), mine(c, s.tracer)
	if file != nil {
		summary = besideResult(c, file)
		saved(file, file.Finish(snapshot))
	}
	if out != nil {
		saved(out, out.Save(func(w io.Writer) error {
			return output.Pprof.Write(w, snapshot, stacks)
		}, name))
	}
	errs = append(errs, text.WriteSummary(summary, snapshot, stacks, report.Options{Records: s.ooms.Paths()}, screen()))
	var first error
	for _, err := range errs {
		if first != nil && err != nil { // the first error is returned, the others are printed
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

// createCapture creates the file of a capture, which has no name yet.
func createCapture(c *cli.Context, path string) (*output.CaptureFile, error) {
	host, _ := os.Hostname()
	return output.CreateCapture(path, c.Bool("force"), capture.Options{Host: host, Tool: "vramprof " + version, Clock: clock.Now, OnError: func(err error) {
		fmt.Fprintf(c.App.ErrWriter, "vramprof: write %s: %s; tracing goes on\n", path, untrusted.Clean(err.Error()))
	}})
}

// traceInto traces and writes the session into f, which may be nil.
func (s *session) traceInto(ctx context.Context, f *output.CaptureFile) (*ledger.Snapshot, error) {
	if f == nil {
		return s.trace(ctx)
	}
	f.Writer.SetStacks(s.tracer)
	f.Writer.SetCheckpoints(s.tracer.Checkpoint)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var nameErr error
	s.begun = func() {
		if nameErr = f.Publish(); nameErr != nil {
			cancel()
		}
	}
	snapshot, err := s.trace(ctx)
	if nameErr != nil {
		return nil, nameErr
	}
	return snapshot, err
}
