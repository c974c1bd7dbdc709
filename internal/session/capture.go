// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"os"

	"github.com/vramprof/vramprof/internal/output"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// RunInto traces and writes the session into f, which may be nil.
func (s *Session) RunInto(ctx context.Context, f *output.CaptureFile) (*ledger.Snapshot, error) {
	if f == nil {
		return s.Run(ctx)
	}
	f.Writer.SetStacks(s.tracer)
	f.Writer.SetCheckpoints(s.tracer.Checkpoint)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var nameErr error
	s.Began = func() {
		if nameErr = f.Publish(); nameErr != nil {
			cancel()
		}
	}
	snapshot, err := s.Run(ctx)
	if nameErr != nil {
		return nil, nameErr
	}
	return snapshot, err
}

// RunIntoFile opens the session and traces into a file, which it reads then.
func (s *Session) RunIntoFile(ctx context.Context, file *os.File) (*capture.Reader, error) {
	host, _ := os.Hostname()
	w, err := capture.NewWriter(file, capture.Options{Host: host, Tool: s.Tool, Clock: clock.Now})
	if err != nil {
		return nil, err
	}
	s.Trace.Capture = w
	if err := s.Open(ctx); err != nil {
		return nil, errors.Join(err, w.End(nil))
	}
	w.SetStacks(s.tracer)
	w.SetCheckpoints(s.tracer.Checkpoint)
	snapshot, err := s.Run(ctx)
	if err != nil {
		return nil, err
	}
	if err := w.End(snapshot); err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	return capture.NewReaderWith(file, info.Size(), capture.ReadOptions{Unlimited: true}) // we wrote it
}
