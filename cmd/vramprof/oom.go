// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/output"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/profile"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/gpuusage"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/oom"
)

const (
	maxOOMUsers  = 1000        // processes of a reading that get names
	oomStackWait = time.Second // for a stack that arrives after its event
	oomNVMLWait  = 5 * time.Second
)

// newOOMRecorder returns a recorder whose lines go to stderr.
func newOOMRecorder(stderr io.Writer, write func(oom.Error) (string, error)) *oom.Recorder {
	return &oom.Recorder{
		Write:    write,
		Describe: func(o oom.Error) string { return oomReport(o).Text() },
		Say: func(text string) {
			wipe := ""
			if isTerminal(stderr) {
				wipe = wipeLine // there may be a progress line
			}
			fmt.Fprintf(stderr, "%svramprof: %s\n", wipe, untrusted.Clean(text))
		},
	}
}

// oomSource provides the content of a record.
type oomSource struct {
	nvml     gpuusage.NVML                                 // nil without a driver
	snapshot func(books *ledger.Snapshot) *ledger.Snapshot // of books, or as of now if nil
	stacks   callstack.Stacks
	composed func(s *ledger.Snapshot, x report.OOM) // gets what the record is written from; may be nil
}

// content returns the text and the profile of a record. It reads NVML while it takes the snapshot,
// because the process may end soon.
func (s *oomSource) content(o oom.Error) (page, samples []byte, err error) {
	defer func() {
		if r := recover(); r != nil { // a record must not end the session
			err = fmt.Errorf("record an out-of-memory error: internal error: %v", r)
		}
	}()
	x := *oomReport(o)
	var wait sync.WaitGroup
	wait.Go(func() { s.readNVML(&x) })
	snapshot := s.snapshot(o.Books)
	for end := time.Now().Add(oomStackWait); o.Stack != 0 && len(s.stacks.Stack(o.Stack)) == 0 && time.Now().Before(end); {
		time.Sleep(oomStackWait / 50)
	}
	if o.AddHolders != nil {
		o.AddHolders(snapshot)
	}
	wait.Wait()
	if s.composed != nil {
		s.composed(snapshot, x)
	}
	var t, p bytes.Buffer
	if err := text.WriteOOM(&t, snapshot, s.stacks, x, report.Options{}, text.Screen{}); err != nil {
		return nil, nil, err
	}
	if err := profile.Write(&p, snapshot, s.stacks); err != nil {
		return nil, nil, err
	}
	return t.Bytes(), p.Bytes(), nil
}

func oomReport(o oom.Error) *report.OOM { return (*report.OOM)(&o.Event) }

func (s *oomSource) readNVML(x *report.OOM) {
	if s.nvml == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), oomNVMLWait)
	defer cancel()
	usage, err := s.nvml.Usage(ctx)
	if err != nil && len(usage) == 0 {
		return
	}
	x.Read, x.Usage = clock.Now(), usage
	x.GPUs, _ = s.nvml.GPUs(ctx)
	x.Names = map[uint32]string{}
	for _, u := range usage[:min(len(usage), maxOOMUsers)] {
		if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", u.PID)); err == nil {
			x.Names[u.PID] = strings.TrimSpace(string(comm))
		}
	}
}

// oomDir returns the folder for records: --oom-dir, or else other; "" for none.
func oomDir(c *cli.Context, other string) (string, error) {
	switch dir := c.String("oom-dir"); {
	case !c.IsSet("oom-dir") && c.Bool("no-oom"):
		return "", nil
	case !c.IsSet("oom-dir"):
		return other, nil
	case c.Bool("no-oom"):
		return "", usageError{errors.New("use only one of --oom-dir and --no-oom")}
	case dir == "" && other != "":
		return "", usageError{errors.New("--oom-dir is empty (--no-oom writes no records)")}
	case dir == "":
		return "", usageError{errors.New("--oom-dir is empty")}
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
		return codedError{fmt.Errorf("write to %s: %w", dir, err), exitError}
	}
	files := output.NewRecords(open)
	s.ooms = newOOMRecorder(c.App.ErrWriter, func(o oom.Error) (string, error) {
		source := oomSource{nvml: s.config.NVML, snapshot: s.oomBooks, stacks: mine(c, s.tracer)}
		text, profile, err := source.content(o)
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
	s.config.OOM = s.ooms.Add
	return nil
}
