// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/process"
	"go.opentelemetry.io/ebpf-profiler/support"
)

const (
	python310 = 0x030a
	python311 = 0x030b
	python314 = 0x030e
)

// correctOffsets corrects fields that the profiler does not set, or sets wrong.
func correctOffsets(info *support.PyProcInfo) {
	switch info.Version {
	case python310:
		// The type no longer describes the member f_lasti. Its offset follows from
		// Include/cpython/frameobject.h.
		if info.PyFrameObject_f_lasti == 0 {
			info.PyFrameObject_f_lasti = 96
		}
	case python314:
		// The frame below the first frame of a C call has None as its code, as a tagged reference
		// (Include/internal/pycore_stackref.h).
		if info.NoneStructAddr != 0 {
			info.NoneStructAddr |= 1
		}
	}
}

// namedPython reports whether a file's name is one that CPython has.
func namedPython(file string) bool {
	name := path.Base(file)
	return strings.HasPrefix(name, "python") || strings.HasPrefix(name, "libpython")
}

// cLibraryFirst moves the library with pthread_getspecific to the front: for Python 3.13 and newer,
// the profiler takes what it needs to find a thread's state from the first C library only. Since
// glibc 2.34, libpthread.so.0 is empty, and CUDA's libraries load it below libc.so.6.
func cLibraryFirst(mappings []process.RawMapping) {
	rank := func(m process.RawMapping) int {
		for _, prefix := range []string{"libc.so.6", "libpthread-", "ld-musl-"} {
			if strings.HasPrefix(path.Base(m.Path), prefix) {
				return 0
			}
		}
		return 1
	}
	slices.SortStableFunc(mappings, func(a, b process.RawMapping) int { return rank(a) - rank(b) })
}

// pythonFile is a new file with a name of CPython's.
type pythonFile struct {
	id      host.FileID
	mapping process.RawMapping
}

// pythons judges new files that may contain CPython. Only the goroutine that holds Unwinder.mu
// calls its methods.
type pythons struct {
	supported map[host.FileID]bool // files with an interpreter that the profiler supports
	found     []pythonFile         // new files of the process being loaded
}

// support notes a file with an interpreter that the profiler supports.
func (p *pythons) support(file host.FileID) {
	if p.supported == nil {
		p.supported = map[host.FileID]bool{}
	}
	if len(p.supported) >= maxFiles {
		clear(p.supported) // unsupported looks up new files only
	}
	p.supported[file] = true
}

// note adds a new file of the process being loaded if it may contain CPython.
func (p *pythons) note(id libpf.FileID, m process.RawMapping) {
	if namedPython(m.Path) {
		m.Path = strings.Clone(m.Path)
		p.found = append(p.found, pythonFile{host.FileIDFromLibpf(id), m})
	}
}

// unsupported returns a sentence about each new file with a CPython that the profiler does not
// support, by a function that reports whether a file holds one. The profiler supports the default
// build of versions up to 3.14.
func (p *pythons) unsupported(holdsPython func(*process.RawMapping) bool) (texts []string) {
	for _, f := range p.found {
		if !p.supported[f.id] && holdsPython(&f.mapping) {
			texts = append(texts, fmt.Sprintf("no Python frames of processes that run %s: the unwinder does not support this build, such as a free-threaded one or a version after 3.14 (stacks show the interpreter's C functions)", f.mapping.Path))
		}
	}
	p.found = nil
	return texts
}

// isShim reports whether a frame is the one that CPython 3.12 inserts below each call from C into
// the interpreter. It is no function of the program, and no traceback shows it.
func isShim(f Frame) bool { return f.Function == "<interpreter trampoline>" && f.Source == "<shim>" }
