// SPDX-License-Identifier: Apache-2.0

// Package frames decides how stacks are shown: which frames, which of them is the headline, and
// under which names.
package frames

import (
	"fmt"
	"path"
	"strings"

	"github.com/vramprof/vramprof/internal/lazyregexp"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// A step of PyTorch's backward pass, whose threads have no Python frames; without parameters in
// profiles.
var backward = lazyregexp.New(`(Backward\d*|AccumulateGrad)::apply(\(|$)`)

// Visible returns a stack as reports show it, leaf first and never empty. In a stack with Python
// frames, the interpreter's own frames are left out.
func Visible(st callstack.Stacks, id uint64, api string) []callstack.Frame {
	var list []callstack.Frame
	if id != 0 {
		list = st.Stack(id)
	}
	if len(list) == 0 {
		if api == "torch" { // as the ledger calls reports of PyTorch's allocators
			api = "tensors without a stack trace"
		}
		return []callstack.Frame{{Function: api}, NoStack(id)}
	}
	if !hasPython(list) {
		return list
	}
	kept := make([]callstack.Frame, 0, len(list))
	for i := range list {
		if i == 0 || !isInterpreter(&list[i]) {
			kept = append(kept, list[i])
		}
	}
	return kept
}

// NoStack returns the frame that shows why an allocation has no stack trace. One with an id was
// taken: it was lost on its way, or its process has too many to keep.
func NoStack(id uint64) callstack.Frame {
	why := "it could not be taken" // the notes of reports count the reasons
	if id != 0 {
		why = "it was lost, or not kept"
	}
	return callstack.Frame{Function: "[no stack trace: " + why + "]", Mark: true}
}

func hasPython(list []callstack.Frame) bool {
	for i := range list {
		if list[i].Python {
			return true
		}
	}
	return false
}

// isInterpreter reports whether a frame belongs to the interpreter: _PyEval_EvalFrameDefault,
// method_vectorcall and all other native code in libpython or the python program.
func isInterpreter(f *callstack.Frame) bool {
	return !f.Python && f.Mapping != nil && interpreterFile.MatchString(path.Base(f.Mapping.Path))
}

// Headline returns the index of the frame that best shows where in the user's own code a stack
// comes from: the first Python frame of it, else the first native one. Without own code it is the
// first frame that would be own if Mine had marked none; else a Python frame of a library or a
// frame of the backward pass, "AddmmBackward0::apply"; else a native frame outside of well-known
// libraries, or of a library that uses CUDA for others, as NCCL does.
func Headline(list []callstack.Frame) int {
	for _, own := range []func(*callstack.Frame) bool{isUser, isUserByPath} {
		if at := firstOwn(list, own); at >= 0 {
			return at
		}
	}
	for i := range list {
		if list[i].Python || backward.MatchString(list[i].Function) {
			return i
		}
	}
	if at := firstNative(list, isUnknownLibrary); at > 0 {
		return at
	}
	return max(firstNative(list, usesCUDA), 0)
}

// usesCUDA reports whether a frame is in a library of NVIDIA's above CUDA itself: NCCL, cuBLAS,
// cuDNN, TensorRT.
func usesCUDA(f *callstack.Frame) bool {
	return f.Mapping != nil && cudaUser.MatchString(path.Base(f.Mapping.Path))
}

func firstOwn(list []callstack.Frame, own func(*callstack.Frame) bool) int {
	for i := range list {
		if f := &list[i]; f.Python && own(f) {
			return i
		}
	}
	return firstNative(list, own)
}

// firstNative returns the first native frame above the traced call for which is returns true: one
// with a name, else any; -1 if there is none.
func firstNative(list []callstack.Frame, is func(*callstack.Frame) bool) int {
	unnamed, calls := -1, runtimeFrames(list)
	for i := 1; i < len(list); i++ {
		switch f := &list[i]; {
		case f.Python || !is(f) || i < calls && f.Whose != callstack.Mine:
		case hasName(f):
			return i
		case unnamed < 0:
			unnamed = i
		}
	}
	return unnamed
}

// runtimeFrames returns how many frames at the leaf are in CUDA's runtime, also where a program has
// it in itself: up to cudaMalloc and the like.
func runtimeFrames(list []callstack.Frame) int {
	for i := len(list) - 1; i >= 0; i-- {
		if isRuntimeCall(&list[i]) {
			return i + 1
		}
	}
	return 0
}

func isUnknownLibrary(f *callstack.Frame) bool {
	return f.Mapping != nil && !f.Mark && !beforeMain.MatchString(f.Function) && !isKnownLibrary(path.Base(f.Mapping.Path)) && !installed.MatchString(f.Mapping.Path)
}

// hasName reports false for "lib.so+0x1234".
func hasName(f *callstack.Frame) bool {
	return f.File != "" || !strings.Contains(f.Function, "+0x")
}

// Name returns the function of a frame, or "libx.so+0x1234"; it is never empty.
func Name(f *callstack.Frame) string {
	if name := untrusted.Clean(f.Function); name != "" {
		return name
	}
	if f.Mapping != nil {
		return fmt.Sprintf("%s+%#x", untrusted.Clean(path.Base(f.Mapping.Path)), f.Address)
	}
	return "[unknown]"
}

// ShortFile returns a path without what precedes site-packages/ or the standard library.
func ShortFile(file string) string {
	file = untrusted.Clean(file)
	if at := installed.FindAllStringIndex(file, -1); at != nil {
		return file[at[len(at)-1][1]:]
	}
	if at := standardLibrary.FindStringIndex(file); at != nil {
		return file[at[1]:]
	}
	return file
}

// Parts returns the two halves of a frame's line: "train.py:42" and "step" for Python,
// "step<float>" and "train.cc:42" or "step" and "[libx.so]" for native code.
func Parts(f *callstack.Frame) (front, back string) {
	file := ShortFile(f.File)
	if f.Line != 0 && file != "" {
		file = fmt.Sprintf("%s:%d", file, f.Line)
	}
	name := Name(f)
	switch {
	case f.Mark:
		return name, ""
	case f.Python && file == "":
		return name, ""
	case f.Python:
		return file, name
	case file != "":
		return name, file
	case f.Mapping != nil:
		if base := untrusted.Clean(path.Base(f.Mapping.Path)); !strings.HasPrefix(name, base+"+0x") {
			return name, "[" + base + "]"
		}
	}
	return name, ""
}
