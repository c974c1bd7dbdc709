// SPDX-License-Identifier: Apache-2.0

// Package callstack has the types of a symbolized stack. All packages that show or store stacks
// import it; it imports nothing.
package callstack

// Mapping is one executable file as a traced process mapped it. It is shared
// by all frames of the file and never changed.
type Mapping struct {
	Path    string // as the process sees it, untrusted
	BuildID string // GNU build id in hex, "" if the file has none
	Start   uint64 // ELF virtual address range of the executable segment
	Limit   uint64
	Offset  uint64 // file offset of Start
}

// Frame is one line of a stack.
type Frame struct {
	Function   string   // as people read it: demangled, never empty
	SystemName string   // mangled; empty for Python
	File       string   // source file, "" if unknown
	Line       int      // 0 if unknown
	StartLine  int      // first line of the function, 0 if unknown
	Address    uint64   // ELF virtual address (of the call, not of the return); 0 for Python
	Mapping    *Mapping // nil for Python, JIT and marks
	Python     bool
	Inlined    bool // was inlined into the next frame
	Mark       bool // not a function but a remark such as [truncated: …]
}

// Stacks finds the frames of a stack id, leaf first. It returns none for an id that it does not know.
type Stacks interface {
	Stack(id uint64) []Frame
}
