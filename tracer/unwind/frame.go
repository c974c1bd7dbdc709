// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"fmt"
	"slices"

	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/libpf"

	"github.com/vramprof/vramprof/bpf"
)

// NewFile is an executable file seen in a process for the first time.
type NewFile struct {
	ID         string // hash of its content
	Path       string // in the process's mount namespace, untrusted
	BuildID    string // GNU build id, hex
	PID        uint32 // a process that maps it
	Start, End uint64 // of the mapping there, for /proc/PID/map_files
}

// File is the executable mapping that a native frame lies in.
type File struct {
	ID, Path, BuildID    string
	Start, Limit, Offset uint64 // ELF addresses of the segment; its file offset
}

// Frame is one frame of a stack: native (File is set), Python (Function is set), or the reason why
// the walk ended (Error is set).
type Frame struct {
	File      *File  // read-only; frames in one mapping share it
	Address   uint64 // ELF address inside the call
	Function  string // Python's qualified name
	Source    string
	Line      int
	FirstLine int
	Error     string
	JIT       bool // the code is in no file; Address is in the process's address space
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

// findFiles sets the files of native frames that the profiler does not know: of processes whose files
// are known from others, and of libraries that became known after the walk (see leave_new_library).
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

// Locate sets the file of a frame whose code was in no known file when its stack was decoded, if the
// process's mappings are known by now. Else it leaves the frame as it is. Any goroutine may call it.
func (u *Unwinder) Locate(pid uint32, f *Frame) {
	if !f.JIT {
		return
	}
	if at, ok := u.layouts.spanAt(pid, f.Address); ok {
		u.setFile(f, at.file, f.Address-at.bias)
	}
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

// NoTables is the Reason of a walk that ended for lack of unwind tables.
const NoTables = "unwind tables were not loaded yet, or the code is in no file"

// Reason describes why a walk ended early; code is one of the unwinder's error codes.
func Reason(code uint32) string {
	switch code {
	case bpf.WalkStackLengthExceeded, bpf.WalkMaxTailCalls:
		return "the stack is deeper than the unwinder can walk"
	case bpf.WalkEmptyStack:
		return "the stack is empty"
	case bpf.WalkPythonNoProcInfo, bpf.WalkNativeLookupTextSection, bpf.WalkNativeLookupStackDeltaOuterMap,
		bpf.WalkNativeLookupStackDeltaInnerMap, bpf.WalkNativeNoPIDPageMapping:
		return NoTables
	case bpf.WalkPythonZeroThreadState:
		return "Python's thread state was not found"
	case bpf.WalkNativeStackDeltaInvalid:
		return "the code has no unwind information"
	case bpf.WalkNativePCRead, bpf.WalkNativeZeroPC, bpf.WalkNativeSmallPC:
		return "a return address could not be read"
	case bpf.WalkNativeUnsupportedMapping, bpf.WalkNativeNoVMA, bpf.WalkNativeNonExecutableVMA:
		return "the code is in no file"
	}
	const errorsOfLanguage = 1000
	if first := bpf.WalkPythonBadCodeObjectAddr; code >= first && code < first+errorsOfLanguage {
		return "a Python frame could not be read"
	}
	return fmt.Sprintf("unwinder error %d", code)
}
