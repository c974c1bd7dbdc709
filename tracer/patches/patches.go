// SPDX-License-Identifier: Apache-2.0

// Package patches finds functions that a process has changed in its memory. UCX, Frida and other
// tools overwrite the first bytes of a function with a jump, and debuggers overwrite one with a
// breakpoint. A probe there would destroy the patch: the kernel puts the probe's breakpoint over
// it, runs the file's instruction instead, and writes the file's byte back at the end.
//
// The package reads memory of other processes and changes nothing. Any goroutine may use it.
package patches

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vramprof/vramprof/tracer/deadline"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/probepoint"
	"github.com/vramprof/vramprof/tracer/procfs"
)

const (
	// behind is how many bytes from a probe on must be the file's: the longest instruction has 15.
	behind = 16
	// patienceOf limits the look at one process, which can delay reads of its memory. It takes some
	// milliseconds, and half a second on a busy machine.
	patienceOf = 2 * time.Second
)

// Code is the code of a file that the probes in it rely on.
type Code struct {
	pieces []piece                  // ordered by offset
	probed atomic.Pointer[[][]byte] // pieces with the breakpoints that every process has, as read last
}

// piece is a function from its start to behind its probe, or less at the file's end.
type piece struct {
	function string
	offset   uint64 // in the file
	bytes    []byte
	probe    uint64 // its probe's place in bytes
}

func (p *piece) end() uint64 { return p.offset + uint64(len(p.bytes)) }

// Read reads the code of functions from their file.
func Read(f io.ReaderAt, functions []probepoint.Function) (*Code, error) {
	c := &Code{}
	for _, at := range functions {
		b := make([]byte, at.Probe-at.Offset+behind)
		n, err := f.ReadAt(b, int64(at.Offset))
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("read the code of %s: %w", at.Name, err)
		}
		c.pieces = append(c.pieces, piece{at.Name, at.Offset, b[:n], at.Probe - at.Offset})
	}
	slices.SortFunc(c.pieces, func(a, b piece) int { return cmp.Compare(a.offset, b.offset) })
	return c, nil
}

// IsEmpty reports whether there is no code to compare.
func (c *Code) IsEmpty() bool { return len(c.pieces) == 0 }

// Same reports whether a version of the file has the same code.
func (c *Code) Same(f io.ReaderAt) bool {
	for _, p := range c.pieces {
		b := make([]byte, len(p.bytes))
		if _, err := f.ReadAt(b, int64(p.offset)); err != nil || !bytes.Equal(b, p.bytes) {
			return false
		}
	}
	return true
}

// Patch is a process whose memory of a file is not the file's.
type Patch struct {
	PID      uint32
	Function string // the first that differs; "" if the memory could not be compared
	Err      error  // why it could not be
	// It put a breakpoint of its own where a function is probed. Even a probe in another process
	// takes the trap: the kernel looks for probes by file.
	Trap bool
}

// String returns what the process did, "overwrote cuMemAlloc_v2 in its memory, as UCX, Frida and
// debuggers do".
func (p Patch) String() string {
	if p.Err != nil {
		return "does not let its memory be compared with the file (" + p.Err.Error() + ")"
	}
	return "overwrote " + p.Function + " in its memory, as UCX, Frida and debuggers do"
}

// Find returns the processes that changed the code, ordered by pid. path leads to the file, and
// mapped are all its mappings in those processes. Breakpoints of probes are no change. The result
// also has a process whose memory could not be compared: see Patch.Err. Find ends at the first that
// stalls it, see procfs.Call.
func (c *Code) Find(path string, mapped []libraries.Mapped) (list []Patch) {
	return c.find(path, mapped, false)
}

// FindProbed is Find for processes in which vramprof has probed the code by itself: breakpoints at
// the places of the probes are no change.
func (c *Code) FindProbed(path string, mapped []libraries.Mapped) (list []Patch) {
	return c.find(path, mapped, true)
}

func (c *Code) find(path string, mapped []libraries.Mapped, apart bool) (list []Patch) {
	mapped = slices.DeleteFunc(slices.Clone(mapped), libraries.Mapped.IsOwn)
	slices.SortStableFunc(mapped, func(a, b libraries.Mapped) int { return cmp.Compare(a.PID, b.PID) })
	var looks []*look
	for len(mapped) > 0 {
		n := 1
		for n < len(mapped) && mapped[n].PID == mapped[0].PID {
			n++
		}
		looks = append(looks, &look{code: c, path: path, pid: mapped[0].PID, parts: mapped[:n], apart: apart})
		mapped = mapped[n:]
	}
	found := make([]*Patch, len(looks))
	var next atomic.Int64
	var stalled atomic.Bool
	var wait sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(looks)) {
		wait.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(looks)) && !stalled.Load(); i = next.Add(1) - 1 {
				l := looks[i]
				got, err := procfs.Call(l.pid, patienceOf, l.find)
				if errors.Is(err, deadline.ErrStuck) {
					stalled.Store(true)
				}
				if got.function != "" || err != nil {
					found[i] = &Patch{l.pid, got.function, err, got.trap}
				}
			}
		})
	}
	wait.Wait()
	for _, p := range found {
		if p != nil {
			list = append(list, *p)
		}
	}
	return list
}
