// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/reporter/samples"
)

// ReportTraceEvent implements the process manager's callback with the result of HandleTrace.
func (u *Unwinder) ReportTraceEvent(trace *libpf.Trace, _ *samples.TraceEventMeta) error {
	u.trace = trace
	return nil
}

// Stack is a stack trace. The kernel half sends each distinct stack once.
type Stack struct {
	ID       uint64
	PID, TID uint32
	Frames   []Frame // leaf first
}

// ErrBusy means that a stack cannot be decoded now because tables are being loaded.
var ErrBusy = errors.New("unwind tables are being loaded")

// Decode decodes a record of the ring of stacks. It reads the names of Python frames from the
// process's memory; if the process has ended, these frames have an Error. On ErrBusy the caller
// must call Decode again.
func (u *Unwinder) Decode(raw []byte) (Stack, error) {
	// The kernel half sends a Trace up to its last frame.
	t := &u.record
	n := copy(unsafe.Slice((*byte)(unsafe.Pointer(t)), unsafe.Sizeof(*t)), raw)
	head := int(unsafe.Offsetof(t.Frame_data))
	if n < head {
		return Stack{}, fmt.Errorf("stack of %d bytes: too short", len(raw))
	}
	words := int(t.Frame_data_len)
	if words > len(u.raw.FrameDataBuf) || n < head+8*words {
		return Stack{}, fmt.Errorf("stack of %d bytes with %d words: too short", len(raw), words)
	}
	u.raw.PID, u.raw.TID = libpf.PID(t.Pid), libpf.PID(t.Tid)
	// The words before those of the outermost wrapper, see cut_to_wrapper.
	skipped := min(int(t.Num_kernel_frames), words)
	u.raw.NumFrames = t.Num_frames - uint16(skipped/2)
	u.raw.FrameData = u.raw.FrameDataBuf[:words-skipped]
	copy(u.raw.FrameData, t.Frame_data[skipped:])
	if !wellFormed(u.raw.FrameData) {
		return Stack{}, fmt.Errorf("stack of process %d: frame lengths do not add up", t.Pid)
	}
	if !u.know(t.Pid, uint32(t.Ktime)) {
		return Stack{}, ErrBusy
	}
	u.age(time.Now())
	s := Stack{ID: t.Value, PID: t.Pid, TID: t.Tid}
	if err := u.handle(); err != nil {
		s.Frames = []Frame{{Error: err.Error()}}
		return s, nil
	}
	if u.trace == nil {
		return s, nil
	}
	s.Frames = make([]Frame, 0, len(u.trace.Frames))
	for _, f := range u.trace.Frames {
		s.Frames = append(s.Frames, u.frame(f.Value()))
	}
	u.findFiles(&s)
	u.correctLines(&s)
	s.Frames = slices.DeleteFunc(s.Frames, isShim)
	return s, nil
}

// age drops what Decode has not used for long.
func (u *Unwinder) age(now time.Time) {
	u.mappings.age(now)
	if u.lines.age(now) {
		u.linesSize = 0
	}
}

// know registers the process of a stack with the profiler, by the number of its layout. It does not
// block: false means that the caller must try again.
func (u *Unwinder) know(pid, number uint32) bool {
	at, known := u.layouts.layoutOf(pid)
	if known {
		return true
	}
	if at == nil {
		u.layouts.adopt(pid, number)
		at, _ = u.layouts.layoutOf(pid)
	}
	if at == nil {
		return true // without a layout its frames have no files
	}
	if !u.mu.TryLock() {
		return false
	}
	defer u.mu.Unlock()
	u.learn(pid, at)
	return true
}

// handle has the process manager turn u.raw into u.trace.
func (u *Unwinder) handle() (err error) {
	if u.trace = nil; u.isBroken() {
		return errBroken
	}
	defer func() {
		if r := recover(); r != nil {
			u.problemOf(uint32(u.raw.PID), fmt.Sprintf("decode a stack of process %d: panic: %v", u.raw.PID, r))
			err = errors.New("the stack could not be decoded")
		}
	}()
	u.manager.HandleTrace(&u.raw, nil)
	return nil
}

// wellFormed reports whether the variable-length frames end within words. The process manager does
// not check bounds.
func wellFormed(words []uint64) bool {
	for frames := libpf.EbpfFrame(words); len(frames) > 0; {
		n := int(frames.Length())
		if n <= 0 || n > len(frames) {
			return false
		}
		frames = frames[n:]
	}
	return true
}
