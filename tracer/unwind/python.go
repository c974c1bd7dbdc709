// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"unsafe"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/support"
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

// isShim recognizes the frame that CPython 3.12 puts under each call from C into the interpreter: no
// function of the program's, and in no traceback.
func isShim(f Frame) bool { return f.Function == "<interpreter trampoline>" && f.Source == "<shim>" }
