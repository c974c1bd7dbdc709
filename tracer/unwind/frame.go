// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"fmt"

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

// Stack is a stack trace. The kernel half sends each distinct stack once.
type Stack struct {
	ID       uint64
	PID, TID uint32
	Frames   []Frame // leaf first
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
