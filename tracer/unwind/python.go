// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"fmt"
	"path"
	"strings"
	"unsafe"

	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/process"
	"go.opentelemetry.io/ebpf-profiler/support"
	"go.opentelemetry.io/ebpf-profiler/util"
)

const (
	python310 = 0x030a
	python311 = 0x030b
	python314 = 0x030e
)

// UpdateProcData notes how to walk the Python stacks of the process that is being loaded, and corrects what the profiler does not know.
func (t *tables) UpdateProcData(kind libpf.InterpreterType, _ libpf.PID, data unsafe.Pointer) error {
	if kind == libpf.Python {
		info := *(*support.PyProcInfo)(data)
		correctOffsets(&info)
		t.u.layouts.setPython(unsafe.Slice((*byte)(unsafe.Pointer(&info)), unsafe.Sizeof(info)))
	}
	return nil
}

// DeleteProcData takes that back.
func (t *tables) DeleteProcData(kind libpf.InterpreterType, _ libpf.PID) error {
	if kind == libpf.Python {
		t.u.layouts.setPython(nil)
	}
	return nil
}

func correctOffsets(info *support.PyProcInfo) {
	switch info.Version {
	case python310:
		// f_lasti is no longer among the members that the type describes; its
		// place is that of Include/cpython/frameobject.h.
		if info.PyFrameObject_f_lasti == 0 {
			info.PyFrameObject_f_lasti = 96
		}
	case python314:
		// The frame below the first one of a C call names None as its code: a tagged
		// reference (Include/internal/pycore_stackref.h).
		if info.NoneStructAddr != 0 {
			info.NoneStructAddr |= 1
		}
	}
}

// UpdateInterpreterOffsets notes which files hold an interpreter that the profiler knows.
func (t *tables) UpdateInterpreterOffsets(program uint16, file host.FileID, ranges []util.Range) error {
	if len(t.u.known) >= maxFiles {
		clear(t.u.known) // new files only are asked for
	}
	t.u.known[file] = true
	return t.EbpfHandler.UpdateInterpreterOffsets(program, file, ranges)
}

// namedPython reports whether a file is named as those that may hold CPython.
func namedPython(file string) bool {
	name := path.Base(file)
	return strings.HasPrefix(name, "python") || strings.HasPrefix(name, "libpython")
}

// pythonFile is a new file that is named as CPython's are.
type pythonFile struct {
	id      host.FileID
	mapping process.RawMapping
}

// notePython remembers a new file of the process being loaded if it may hold CPython.
func (u *Unwinder) notePython(id libpf.FileID, m process.RawMapping) {
	if namedPython(m.Path) {
		m.Path = strings.Clone(m.Path)
		u.pythons = append(u.pythons, pythonFile{host.FileIDFromLibpf(id), m})
	}
}

// judgePythons says of which new files the profiler takes no Python frames though they hold CPython: it knows
// up to 3.14, and of each version the default build alone.
func (u *Unwinder) judgePythons(p guarded) {
	for _, f := range u.pythons {
		if !u.known[f.id] && p.holdsPython(&f.mapping) {
			u.problem(fmt.Sprintf("no Python frames of processes that run %s: the unwinder does not know this build, such as a free-threaded one or a version after 3.14 (the stacks have the interpreter's own functions instead)", f.mapping.Path))
		}
	}
	u.pythons = nil
}

// holdsPython reports whether a file exports CPython's state; a program that is linked with libpython does not.
func (g guarded) holdsPython(m *process.RawMapping) bool {
	f, err := g.open(m)
	if err != nil {
		return false
	}
	file, err := pfelf.NewFileOwned(f)
	if err != nil {
		return false // it is closed
	}
	defer file.Close()
	_, err = file.LookupSymbolAddress("_PyRuntime")
	return err == nil
}

// isShim recognizes the frame that CPython 3.12 puts under each call from C into the interpreter: no
// function of the program's, and in no traceback.
func isShim(f Frame) bool { return f.Function == "<interpreter trampoline>" && f.Source == "<shim>" }
