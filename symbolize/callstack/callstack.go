// SPDX-License-Identifier: Apache-2.0

// Package callstack defines the types of a symbolized stack: frames, mappings and the interface
// that finds them. It imports nothing, so every package can import it.
package callstack

// Mapping is one executable file mapped by a traced process. All frames of the file share it; it is
// never changed.
type Mapping struct {
	Path    string // as the process sees it, untrusted
	BuildID string // GNU build id in hex, "" if the file has none
	Start   uint64 // ELF virtual address range of the executable segment
	Limit   uint64
	Offset  uint64 // file offset of Start
}

// Frame is one line of a stack.
type Frame struct {
	Function   string   // demangled, never empty
	SystemName string   // mangled; empty for Python
	File       string   // source file, "" if unknown
	Line       int      // 0 if unknown
	StartLine  int      // first line of the function, 0 if unknown
	Address    uint64   // ELF virtual address of the call, not of the return; 0 for Python
	Mapping    *Mapping // nil for Python, JIT code and marks
	Python     bool
	Inlined    bool // was inlined into the next frame
	Mark       bool // a remark such as [truncated: …], not a function
	Whose      Whose
}

// Whose is what the user said about whose code a frame is. Package report/frames decides where he
// said nothing.
type Whose uint8

const (
	Unsaid Whose = iota
	Mine
	NotMine
)

// Stacks finds the frames of a stack by its id, leaf first. It returns none for an unknown id.
type Stacks interface {
	Stack(id uint64) []Frame
}
