// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/output"
	"github.com/vramprof/vramprof/internal/session"
	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/tracer"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func recordCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "record",
		Usage:     "trace CUDA memory and write a heap profile or a capture",
		UsageText: "vramprof record [OPTIONS] [-- COMMAND [ARGUMENTS]]",
		Description: "By default, every CUDA process is traced. " +
			"Tracing stops on Ctrl-C, after --duration, or when all processes selected by -p, or the command, have ended. " +
			"A second Ctrl-C aborts, or skips the walks for holders at the end. The result is a profile for go tool pprof, or a capture (FILE.vram), which holds all events of the session. A summary is printed.",
		Flags: append(append(traceFlags(), mineFlag()),
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write to `FILE` (default: vramprof-HOST-TIME.pb.gz); FILE.vram is a capture, - is stdout"},
			&cli.StringFlag{Name: "for", Usage: "record for `PURPOSE`: whatif makes a capture that vramprof whatif can replay. It has every tensor (as --sample 0) with its requested size, stream and pool, which costs the program more time per tensor"},
			&cli.StringSliceFlag{Name: "format", Aliases: []string{"f"}, Usage: "`FORMAT` of FILE: " + output.Recorded.Choice() + "; with both, the other file is written next to it"},
			&cli.BoolFlag{Name: "force", Usage: "overwrite FILE"},
			&cli.StringFlag{Name: "oom-dir", Usage: "write a record of each out-of-memory error into `DIR` (default: the folder of FILE)"},
			&cli.BoolFlag{Name: "no-oom", Usage: "write no records of out-of-memory errors"},
			&cli.BoolFlag{Name: "no-summary", Usage: "print neither the summary nor the names of written files"},
		),
		Action: p.record,
	}
}

func (p *program) record(c *cli.Context) error {
	name := output.DefaultName(time.Now())
	path, capturePath, err := output.Paths(c.String("output"), recordFormats(c), name)
	if err != nil {
		return fault.Usage(err)
	}
	if forWhatIf(c) && capturePath == "" {
		return fault.Usage(errors.New("--for whatif writes a capture: use -o FILE.vram, or --format capture"))
	}
	dir, err := oomDir(c, output.FolderOf(path, capturePath))
	if err != nil {
		return err
	}
	s, err := p.newSession(c)
	if err != nil {
		return err
	}
	defer s.Close()
	if !c.Bool("no-summary") {
		s.FindSteps()
	}
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
		s.Trace.Capture = file.Writer
	}
	if output.IsStdout(path, capturePath) {
		s.Trace.Stdout = os.Stderr // the command's
	}
	if err := s.RecordOOMs(dir); err != nil {
		return err
	}
	if err := s.Open(c.Context); err != nil {
		return err
	}
	snapshot, err := s.RunInto(c.Context, file)
	if err != nil {
		return err
	}
	return writeRecord(c, s, snapshot, out, file, name+output.Pprof.Suffix)
}

// forWhatIf reports whether a session is to be replayed by vramprof whatif.
func forWhatIf(c *cli.Context) bool { return c.String("for") == "whatif" }

// recordFormats reads --format. What is recorded for whatif is a capture by default.
func recordFormats(c *cli.Context) []string {
	formats := c.StringSlice("format")
	if forWhatIf(c) && len(formats) == 0 && c.String("output") == "" {
		return []string{output.Capture.Name}
	}
	return formats
}

// purposeFlag reads --for, and sets what it implies.
func purposeFlag(c *cli.Context, config *tracer.Config) error {
	switch purpose := c.String("for"); {
	case purpose == "":
		return nil
	case !forWhatIf(c):
		return fault.Usage(fmt.Errorf("--for is whatif, not %q", purpose))
	case c.String("budget") != "off":
		return fault.Usage(errors.New("use only one of --for whatif and --budget: a replay needs every tensor"))
	case config.NoTensors:
		return fault.Usage(errors.New("use only one of --for whatif and --tensors=off"))
	case c.String("sample") != "auto" && config.Sample != 0:
		return fault.Usage(errors.New("use only one of --for whatif and --sample: a replay needs every tensor"))
	}
	config.Sample, config.SampleLimit, config.Details = 0, 0, true
	return nil
}

// writeRecord writes the profile, the capture and the summary, and goes on after errors; out and
// file may be nil. name is the profile's name in the folder for temporary files if out fails.
func writeRecord(c *cli.Context, s *session.Session, snapshot *ledger.Snapshot, out output.Destination, file *output.CaptureFile, name string) error {
	var errs []error
	saved := func(d output.Destination, err error) {
		if err == nil && !c.Bool("no-summary") {
			sayWrote(c, d)
		}
		errs = append(errs, err)
	}
	summary, stacks := besideResult(c, out), s.Stacks()
	if file != nil {
		summary = besideResult(c, file)
		saved(file, file.Finish(snapshot))
	}
	if out != nil {
		saved(out, out.Save(func(w io.Writer) error {
			return output.Pprof.Write(w, snapshot, stacks)
		}, name))
	}
	if !c.Bool("no-summary") {
		errs = append(errs, text.WriteSummary(summary, snapshot, stacks, report.Options{Records: s.Records(), Steps: s.Steps()}, terminal.Screen()))
	}
	var first error
	for _, err := range errs {
		if first != nil && err != nil { // the first error is returned, the others are printed
			fmt.Fprintf(c.App.ErrWriter, "vramprof: %s\n", untrusted.Clean(err.Error()))
		} else if err != nil {
			first = err
		}
	}
	if first == nil {
		return s.CommandStatus(c.Context)
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
