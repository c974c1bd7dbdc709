// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"path"
	"strings"

	"github.com/vramprof/vramprof/internal/lazyregexp"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// Leaf returns how many frames at the leaf of a stack are below the code that people can change,
// and the function that this code called: "at::_ops::linear::call", "ncclCommInitRank",
// "cudaMalloc". The list is one that Visible returned, and at least one frame of it is never below.
//
// With Python in the stack, all native code of libraries below the last Python or own function is:
// PyTorch's operators and allocator, CUDA, ctypes. Without, CUDA, PyTorch and templates of
// libraries are, and frames of other libraries are the leaf; a step of the backward pass is its own
// leaf. A stack of libraries alone keeps the operator that was called.
func Leaf(list []callstack.Frame) (below int, callee string) {
	n := firstChangeable(list)
	if n <= 0 {
		return 0, ""
	}
	return n, calleeOf(list[:n])
}

func firstChangeable(list []callstack.Frame) int {
	if len(list) == 0 || list[0].Python || list[0].Mark {
		return 0
	}
	python, calls := hasPython(list), runtimeFrames(list)
	for i := 1; i < len(list); i++ { // list[0] is the traced call
		switch f := &list[i]; {
		case f.Mark:
			return lastOperator(list[:i])
		case i < calls && f.Whose != callstack.Mine: // CUDA's, also in a program of its own
		case f.Python || isUser(f) || isBackward(f):
			return i
		case python || allocates(f) || isRuntime(f): // PyTorch initializes in pthread_once
		default:
			return i
		}
	}
	return lastOperator(list)
}

// isBackward reports whether a frame is a step of the backward pass. Most names are answered
// without a regular expression.
func isBackward(f *callstack.Frame) bool {
	return strings.Contains(f.Function, "::apply") && backward.MatchString(f.Function)
}

// isRuntime reports whether a frame is of the C or C++ runtime, where threads begin.
func isRuntime(f *callstack.Frame) bool {
	return beforeMain.MatchString(f.Function) || f.Mapping != nil && runtimeLibrary.MatchString(path.Base(f.Mapping.Path))
}

// allocates reports whether a frame is of CUDA, PyTorch, ctypes or a template of a library.
func allocates(f *callstack.Frame) bool {
	if f.Mapping == nil {
		return false
	}
	base := path.Base(f.Mapping.Path)
	return callstack.IsTorch(base) || allocator.MatchString(base) || interpreterFile.MatchString(base) ||
		!libraries.of(f.Mapping.Path) && (libraryName.MatchString(f.SystemName) || f.File != "" && librarySources.of(f.File))
}

var (
	allocator      = lazyregexp.New(`^(libcu|libnv|libnccl|libcaffe|libffi)|^_ctypes\b`)
	runtimeLibrary = lazyregexp.New(`^(libc|libpthread|libstdc\+\+|libc\+\+|ld-linux[-\w]*|ld-musl[-\w]*)[-.]`)

	// An operator of PyTorch: at::_ops::linear::call, …::redispatch.
	operator = lazyregexp.New(`(^| )at::_ops::\w+::\w+(\(|$)`)

	// Between Python and libraries: no function that anybody would know.
	glue = lazyregexp.New(`^(libffi|libtorch_python)|^_ctypes\b|^(lib)?python[0-9.]*[a-z]{0,3}(\.so|$)`)
)

// lastOperator returns the index of the operator nearest to the root, of a stack without code that
// people can change; 0 if there is none.
func lastOperator(list []callstack.Frame) int {
	for i := len(list) - 1; i > 0; i-- {
		if name := list[i].Function; strings.Contains(name, "at::_ops::") && operator.MatchString(name) {
			return i
		}
	}
	return 0
}

// calleeOf returns the name of the function nearest to the root that people know: an operator, else
// any that has a name.
func calleeOf(list []callstack.Frame) string {
	if i := lastOperator(list); i > 0 {
		return SimpleName(Name(&list[i]))
	}
	for i := len(list) - 1; i > 0; i-- {
		f := &list[i]
		if hasName(f) && (f.Mapping == nil || !glue.MatchString(path.Base(f.Mapping.Path))) {
			return SimpleName(Name(f))
		}
	}
	return SimpleName(Name(&list[0]))
}
