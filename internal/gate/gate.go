// SPDX-License-Identifier: Apache-2.0

// Package gate runs a command under record, compares the GPU memory at its peak with a budget and
// with a baseline, and names the lines of code that grew.
package gate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/vramprof/vramprof/internal/source"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/capture"
)

// Run runs the command, and judges. Errors are those of the baseline: whatever else fails is a
// reason for an unknown verdict.
func Run(ctx context.Context, o Options) (*Result, error) {
	r := &Result{Verdict: Good, Command: strings.Join(o.Command, " "), Script: newSources(o.Measure.Folder).script(o.Command), Budget: o.Budget, EachLine: o.EachLine, Tool: o.Tool}
	if o.Baseline != "" {
		var err error
		if r.Before, err = readBaseline(o); err != nil {
			return nil, err
		}
	}
	var runs []*Measurement
	for i := range o.Repeat {
		if o.Repeat > 1 {
			fmt.Fprintf(o.Stderr, "vramprof: run %d of %d\n", i+1, o.Repeat)
		}
		m, why := runOnce(ctx, o)
		if m != nil {
			runs = append(runs, m)
		}
		if why != "" {
			if o.Repeat > 1 {
				why = fmt.Sprintf("run %d: %s", i+1, why)
			}
			r.Why = append(r.Why, why)
			break
		}
	}
	if len(runs) == 0 {
		r.Verdict = Unknown
		return r, nil
	}
	r.Now = combine(runs)
	r.judge(o)
	return r, nil
}

// readBaseline reads a file that Save wrote, or a capture.
func readBaseline(o Options) (*Measurement, error) {
	f, err := os.Open(o.Baseline)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w (ci --save-baseline %s makes it)", err, o.Baseline)
	}
	if err != nil {
		return nil, err
	}
	m, err := readSaved(f)
	f.Close()
	if !errors.Is(err, errNotSaved) {
		if err != nil {
			err = fmt.Errorf("read %s: %w", o.Baseline, err)
		}
		return m, err
	}
	reader, done, err := source.Options{Stderr: o.Stderr}.Capture(o.Baseline)
	if errors.Is(err, capture.ErrNotCapture) {
		err = fmt.Errorf("%w, nor a file of ci --save-baseline", err)
	}
	if err != nil {
		return nil, err
	}
	defer done()
	measure := o.Measure
	measure.Folder = "" // the sources were others then
	if m, err = measure.of(reader); err == nil && m.Processes == 0 {
		err = errors.New("no process used CUDA in it")
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", o.Baseline, err)
	}
	return m, nil
}

// runOnce runs the command once. The measurement is nil if nothing was measured; why is "" if all
// went well.
func runOnce(ctx context.Context, o Options) (m *Measurement, why string) {
	folder, err := os.MkdirTemp("", "vramprof-ci-")
	if err != nil {
		return nil, err.Error()
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "run.vram")
	status, err := record(ctx, o, path)
	if err != nil {
		return nil, err.Error()
	}
	reader, err := capture.OpenWith(path, capture.ReadOptions{Unlimited: true}) // we wrote it
	switch {
	case err != nil && status != 0:
		return nil, "vramprof record failed: its message is above"
	case err != nil:
		return nil, err.Error()
	}
	defer reader.Close()
	if m, err = o.Measure.of(reader); err != nil {
		return nil, err.Error()
	}
	switch {
	case ctx.Err() != nil:
		return m, "interrupted"
	case !reader.Ended():
		return m, "vramprof record ended early"
	case status != 0 && m.Processes == 0:
		return nil, fmt.Sprintf("the command ended with status %d before it used CUDA", status)
	case status != 0:
		return m, fmt.Sprintf("the command ended with status %d", status)
	case m.Processes == 0:
		return nil, "the command never used CUDA"
	case m.Lost > 0:
		return m, format.Count(m.Lost, "event") + " lost, so that the peak may be higher"
	}
	return m, ""
}
