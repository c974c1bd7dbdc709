// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/reporter/samples"
	"go.opentelemetry.io/ebpf-profiler/support"
)

// ReportTraceEvent implements the process manager's callback with the result of HandleTrace.
func (u *Unwinder) ReportTraceEvent(trace *libpf.Trace, _ *samples.TraceEventMeta) error {
	u.trace = trace
	return nil
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
	u.lines.age(now)
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
	if u.trace = nil; u.broken.Load() {
		return errBroken
	}
	defer func() {
		if r := recover(); r != nil {
			u.problems.add(uint32(u.raw.PID), fmt.Sprintf("decode a stack of process %d: panic: %v", u.raw.PID, r))
			err = errors.New("the stack could not be decoded")
		}
	}()
	u.manager.HandleTrace(&u.raw, nil)
	return nil
}

// frame converts a frame of the profiler.
func (u *Unwinder) frame(f libpf.Frame) Frame {
	switch {
	case f.Type.IsError():
		return Frame{Error: Reason(uint32(f.AddressOrLineno))}
	case f.Type.Interpreter() == libpf.Python:
		if f.FunctionName == libpf.NullString {
			return Frame{Error: "a Python frame could not be read"}
		}
		line := int(f.SourceLine)
		return Frame{
			Function:  f.FunctionName.String(),
			Source:    f.SourceFile.String(),
			Line:      line,
			FirstLine: max(0, line-int(f.FunctionOffset)),
		}
	}
	frame := Frame{Address: uint64(f.AddressOrLineno)}
	if !f.Mapping.Valid() {
		frame.JIT = true
		return frame
	}
	frame.File = u.fileOf(f.Mapping)
	return frame
}

// rawFrames returns the frames as the kernel half sent them. The profiler converts each to one
// frame.
func (u *Unwinder) rawFrames() (list []libpf.EbpfFrame) {
	for rest := libpf.EbpfFrame(u.raw.FrameData); len(rest) > 0; rest = rest[rest.Length():] {
		list = append(list, rest[:rest.Length()])
	}
	return list
}

// findFiles sets the files of native frames that the profiler does not know: of processes whose
// files are known from others, and of libraries that became known after the walk (see
// leave_new_library).
func (u *Unwinder) findFiles(s *Stack) {
	if !slices.ContainsFunc(s.Frames, func(f Frame) bool { return f.JIT }) {
		return
	}
	raw := u.rawFrames()
	if len(raw) != len(s.Frames) {
		return
	}
	for i := range s.Frames {
		f := &s.Frames[i]
		if !f.JIT || raw[i].Type().Interpreter() != libpf.Native {
			continue
		}
		if id := raw[i].Variable(0); id != 0 {
			u.setFile(f, id, f.Address)
		} else {
			u.Locate(s.PID, f)
		}
	}
}

// correctLines replaces the lines of Python frames in s, which was decoded from u.raw, for Python
// 3.10 and later. A line that cannot be read is 0.
func (u *Unwinder) correctLines(s *Stack) {
	at, _ := u.layouts.layoutOf(s.PID)
	if !hasPython(s.Frames) || at == nil || at.python == nil {
		return
	}
	info := *(*support.PyProcInfo)(unsafe.Pointer(unsafe.SliceData(at.python)))
	layout, wrong := layoutOf(&info)
	if !wrong {
		return
	}
	lineOf := lineOf311
	if info.Version == python310 {
		lineOf = lineOf310
	}
	raw := u.rawFrames()
	for i := range s.Frames {
		f := &s.Frames[i]
		if f.Function == "" {
			continue
		}
		f.Line = 0
		// The profiler converts each frame that the kernel half sends to one frame.
		if len(raw) == len(s.Frames) && raw[i].Type().IsInterpType(libpf.Python) && len(raw[i]) == 3 {
			at := raw[i].Variable(1) // checksum of the code object | index of the instruction << 32
			if c := u.lines.of(&u.memories, codeKey{s.PID, uint32(at), raw[i].Variable(0)}, &layout); c != nil {
				f.Line = lineOf(c.table, c.first, int32(at>>32))
			}
		}
	}
}

func hasPython(frames []Frame) bool {
	for _, f := range frames {
		if f.Function != "" {
			return true
		}
	}
	return false
}

// Locate sets the file of a frame whose code was in no known file when its stack was decoded, if
// the process's mappings are known by now. Else it leaves the frame as it is. Any goroutine may
// call it.
func (u *Unwinder) Locate(pid uint32, f *Frame) {
	if !f.JIT {
		return
	}
	if at, ok := u.layouts.spanAt(pid, f.Address); ok {
		u.setFile(f, at.file, f.Address-at.bias)
	}
}

// FileAt returns the kernel half's id of the file that a process maps as code at an address, and
// false if that is unknown. Any goroutine may call it.
func (u *Unwinder) FileAt(pid uint32, address uint64) (id uint64, ok bool) {
	s, ok := u.layouts.spanAt(pid, address)
	return s.file, ok
}

// setFile sets the file of a frame at an ELF address of that file, if it is known.
func (u *Unwinder) setFile(f *Frame, id, address uint64) {
	if file := u.codes.file(host.FileID(id), address); file != nil {
		f.File, f.Address, f.JIT = file, address, false
	}
}

// maxKnownMappings limits the number of cached files of mappings.
const maxKnownMappings = 1 << 16

// fileOf returns the file of a mapping, the same pointer for the same mapping while it is cached.
func (u *Unwinder) fileOf(mapping libpf.FrameMapping) *File {
	if known, ok := u.mappings.get(mapping); ok {
		return known
	}
	m := mapping.Value()
	file := m.File.Value()
	f := &File{
		ID: file.FileID.StringNoQuotes(), Path: u.path(file), BuildID: file.GnuBuildID,
		Start: uint64(m.Start), Limit: uint64(m.End), Offset: m.FileOffset,
	}
	if len(u.mappings.young) >= maxKnownMappings/2 {
		u.mappings.turn()
	}
	u.mappings.put(mapping, f)
	return f
}

// path returns the path of a file as reported by ReportExecutable.
func (u *Unwinder) path(file libpf.FrameMappingFileData) string {
	u.fileMu.RLock()
	defer u.fileMu.RUnlock()
	if path, ok := u.files[file.FileID]; ok {
		return path
	}
	return file.FileName.String()
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
