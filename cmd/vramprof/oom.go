// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/oomrecord"
	"github.com/vramprof/vramprof/internal/output"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/oom"
)

// oomDir returns the folder for records: --oom-dir, or else other; "" for none.
func oomDir(c *cli.Context, other string) (string, error) {
	switch dir := c.String("oom-dir"); {
	case !c.IsSet("oom-dir") && c.Bool("no-oom"):
		return "", nil
	case !c.IsSet("oom-dir"):
		return other, nil
	case c.Bool("no-oom"):
		return "", fault.Usage(errors.New("use only one of --oom-dir and --no-oom"))
	case dir == "" && other != "":
		return "", fault.Usage(errors.New("--oom-dir is empty (--no-oom writes no records)"))
	case dir == "":
		return "", fault.Usage(errors.New("--oom-dir is empty"))
	default:
		return dir, nil
	}
}

func (s *session) oomBooks(books *ledger.Snapshot) *ledger.Snapshot {
	if books == nil {
		return s.snapshot()
	}
	return s.warned(books)
}

// recordOOMs makes the session write a record of each out-of-memory error into dir, unless dir is
// "".
func (s *session) recordOOMs(c *cli.Context, dir string) error {
	if dir == "" {
		return nil
	}
	open, err := openFolder(dir)
	if err == unix.ENOTDIR {
		err = errors.New("not a directory")
	}
	if err != nil {
		return fault.New(fault.Failed, fmt.Errorf("write to %s: %w", dir, err))
	}
	files := output.NewRecords(open)
	s.ooms = oomrecord.New(c.App.ErrWriter, func(o oom.Error) (string, error) {
		source := oomrecord.Source{NVML: s.config.NVML, Snapshot: s.oomBooks, Stacks: mine(c, s.tracer)}
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
	s.config.OOM = s.ooms.Take
	return nil
}
