// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/oomrecord"
	"github.com/vramprof/vramprof/internal/output"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/oom"
)

// Books returns the books of a moment with the warnings of the session; nil: those of now.
func (s *Session) Books(books *ledger.Snapshot) *ledger.Snapshot {
	if books == nil {
		return s.Snapshot()
	}
	return s.warned(books)
}

// RecordOOMs makes the session write a record of each out-of-memory error into dir, unless dir is
// "".
func (s *Session) RecordOOMs(dir string) error {
	if dir == "" {
		return nil
	}
	open, err := output.OpenFolder(dir)
	if err == unix.ENOTDIR {
		err = errors.New("not a directory")
	}
	if err != nil {
		return fault.New(fault.Failed, fmt.Errorf("write to %s: %w", dir, err))
	}
	files := output.NewRecords(open)
	s.ooms = oomrecord.New(s.Stderr, func(o oom.Error) (string, error) {
		source := oomrecord.Source{NVML: s.Trace.NVML, Snapshot: s.Books, Stacks: s.Stacks()}
		text, profile, err := source.Content(o)
		if err != nil {
			return "", err
		}
		return files.Write(o.PID, text, profile)
	})
	s.ooms.Lost = func() (uint64, map[uint32]uint64) {
		if s.tracer == nil {
			return 0, nil // opening it failed
		}
		return s.tracer.LostOOMs()
	}
	s.Trace.OOM = s.ooms.Add
	return nil
}
