// SPDX-License-Identifier: Apache-2.0

package oomrecord

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/profile"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/gpuusage"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/oom"
)

// Source provides the content of a record.
type Source struct {
	NVML     gpuusage.NVML                                 // nil without a driver
	Snapshot func(books *ledger.Snapshot) *ledger.Snapshot // of books, or as of now if nil
	Stacks   callstack.Stacks
	Composed func(s *ledger.Snapshot, x report.OOM) // gets what the record is written from; may be nil
}

// Content returns the text and the profile of a record. It reads NVML while it takes the snapshot,
// because the process may end soon.
func (s *Source) Content(o oom.Error) (page, samples []byte, err error) {
	defer func() {
		if r := recover(); r != nil { // a record must not end the session
			err = fmt.Errorf("record an out-of-memory error: internal error: %v", r)
		}
	}()
	x := *Report(o)
	var wait sync.WaitGroup
	wait.Go(func() { s.readNVML(&x) })
	snapshot := s.Snapshot(o.Books)
	for end := time.Now().Add(stackWait); o.Stack != 0 && len(s.Stacks.Stack(o.Stack)) == 0 && time.Now().Before(end); {
		time.Sleep(stackWait / 50)
	}
	if o.AddHolders != nil {
		o.AddHolders(snapshot)
	}
	wait.Wait()
	if s.Composed != nil {
		s.Composed(snapshot, x)
	}
	var t, p bytes.Buffer
	if err := text.WriteOOM(&t, snapshot, s.Stacks, x, report.Options{}, text.Screen{}); err != nil {
		return nil, nil, err
	}
	if err := profile.Write(&p, snapshot, s.Stacks); err != nil {
		return nil, nil, err
	}
	return t.Bytes(), p.Bytes(), nil
}

// Report returns an error as reports show it.
func Report(o oom.Error) *report.OOM { return (*report.OOM)(&o.Event) }

func (s *Source) readNVML(x *report.OOM) {
	if s.NVML == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), nvmlWait)
	defer cancel()
	usage, err := s.NVML.Usage(ctx)
	if err != nil && len(usage) == 0 {
		return
	}
	x.Read, x.Usage = clock.Now(), usage
	x.GPUs, _ = s.NVML.GPUs(ctx)
	x.Names = map[uint32]string{}
	for _, u := range usage[:min(len(usage), maxUsers)] {
		if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", u.PID)); err == nil {
			x.Names[u.PID] = strings.TrimSpace(string(comm))
		}
	}
}
