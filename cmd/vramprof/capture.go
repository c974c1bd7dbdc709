// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// The formats of record.
const (
	formatProfile = "pprof"
	formatCapture = "capture"

	profileEnding = ".pb.gz"
	captureEnding = ".vram"
)

// recordPaths returns the paths of the files that record writes, "" for none. With one format, its
// file has the name that was given. With two, the other file has that name with its own ending.
func recordPaths(output string, formats []string, name string) (profile, capture string, err error) {
	for _, format := range formats {
		if format != formatProfile && format != formatCapture {
			return "", "", usageError{fmt.Errorf("unknown format %q (formats: %s, %s)", format, formatProfile, formatCapture)}
		}
	}
	wantCapture := slices.Contains(formats, formatCapture)
	wantProfile := slices.Contains(formats, formatProfile)
	if len(formats) == 0 {
		wantCapture = strings.HasSuffix(output, captureEnding)
		wantProfile = !wantCapture
	}
	stem := output
	for _, ending := range []string{profileEnding, captureEnding} {
		stem = strings.TrimSuffix(stem, ending)
	}
	switch {
	case wantProfile && wantCapture && isStream(output):
		return "", "", usageError{fmt.Errorf("%s takes one result, but --format asks for two", output)}
	case output == "":
		profile, capture = name+profileEnding, name+captureEnding
	case wantProfile && wantCapture && strings.HasSuffix(output, captureEnding):
		profile, capture = stem+profileEnding, output
	case wantProfile && wantCapture:
		profile, capture = output, stem+captureEnding
	default:
		profile, capture = output, output
	}
	if !wantProfile {
		profile = ""
	}
	if !wantCapture {
		capture = ""
	}
	return profile, capture, nil
}

// captureFile is a capture that is being written. It gets its name when tracing begins, so that it
// exists however vramprof ends.
type captureFile struct {
	*output
	writer *capture.Writer
	named  bool
	ended  bool

	stream destination // destination of the finished capture; output is then a file without a name
}

// createCapture creates the file, which has no name yet.
func createCapture(c *cli.Context, path string) (*captureFile, error) {
	o, to, err := captureOutput(path, c.Bool("force"))
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname()
	w, err := capture.NewWriter(o, capture.Options{Host: host, Tool: "vramprof " + version, Clock: clock.Now, OnError: func(err error) {
		fmt.Fprintf(c.App.ErrWriter, "vramprof: write %s: %s; tracing goes on\n", path, untrusted.Clean(err.Error()))
	}})
	if err != nil {
		o.discard()
		return nil, o.failed(err)
	}
	return &captureFile{output: o, writer: w, stream: to}, nil
}

// captureOutput creates the file of a capture. Its parts are not written in order, so for a stream
// it creates an unnamed file first.
func captureOutput(path string, force bool) (o *output, to destination, err error) {
	if !isStream(path) {
		o, err = createOutput(path, force)
		return o, nil, err
	}
	if to, err = openStream(path, binaryContent); err != nil {
		return nil, nil, err
	}
	f, err := unnamedFile()
	if err != nil {
		to.discard()
		return nil, nil, err
	}
	return &output{File: f, path: path, shared: true}, to, nil
}

// unnamedFile creates a file in the folder for temporary files that vanishes with the process.
func unnamedFile() (*os.File, error) {
	f, err := os.CreateTemp("", ".vramprof-*")
	if err != nil {
		return nil, fmt.Errorf("create a temporary file for the session: %w", err)
	}
	_ = os.Remove(f.Name())
	return f, nil
}

// traceInto traces and writes the session into f, which may be nil.
func (s *session) traceInto(ctx context.Context, f *captureFile) (*ledger.Snapshot, error) {
	if f == nil {
		return s.trace(ctx)
	}
	f.writer.SetStacks(s.tracer)
	f.writer.SetCheckpoints(s.tracer.Checkpoint)
	if f.stream != nil {
		return s.trace(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var nameErr error
	s.begun = func() {
		if nameErr = f.name(); nameErr != nil {
			cancel()
		}
	}
	snapshot, err := s.trace(ctx)
	if nameErr != nil {
		return nil, nameErr
	}
	return snapshot, err
}

func (f *captureFile) name() error {
	if err := f.publish(); err != nil {
		if os.IsExist(err) {
			err = errExists
		}
		return f.failed(err)
	}
	f.named = true
	return nil
}

// finish ends the capture with the last snapshot. An error leaves a capture that can be read.
func (f *captureFile) finish(snapshot *ledger.Snapshot) error {
	f.ended = true
	err := f.writer.End(snapshot)
	if f.stream != nil {
		return errors.Join(err, f.copyTo(f.stream))
	}
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	f.closeFolder()
	if err != nil {
		return f.failed(err)
	}
	return nil
}

// copyTo copies the finished capture into a stream.
func (f *captureFile) copyTo(to destination) error {
	defer f.Close()
	return to.save(func(w io.Writer) error {
		_, err := io.Copy(w, io.NewSectionReader(f, 0, 1<<62))
		return err
	}, defaultName(time.Now())+captureEnding)
}

func (f *captureFile) isStdout() bool { return f.stream != nil && f.stream.isStdout() }

// discard removes a capture that was not finished. After finish it does nothing.
func (f *captureFile) discard() {
	if f == nil || f.ended {
		return
	}
	f.ended = true
	_ = f.writer.End(nil)
	if f.stream != nil {
		f.stream.discard()
		f.Close()
		return
	}
	if f.named && f.dir.isFile(f.output.name, f.File) { // it has not been replaced
		f.dir.remove(f.output.name)
	}
	f.output.discard()
}

// defaultName returns the default name of an output without its ending: "vramprof-HOST-TIME".
func defaultName(now time.Time) string {
	host, err := os.Hostname()
	if err != nil || host == "" || strings.ContainsAny(host, "/\x00") {
		host = "host"
	}
	return fmt.Sprintf("vramprof-%s-%s", host, now.Format("20060102-150405"))
}

// folderOf returns the folder of the files that record writes.
func folderOf(profile, capture string) string {
	if profile == "" {
		profile = capture
	}
	if isStream(profile) {
		return "."
	}
	return filepath.Dir(profile)
}
