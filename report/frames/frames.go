// SPDX-License-Identifier: Apache-2.0

// Package frames decides how stacks are shown: which frames, which of them is the headline, and
// under which names.
package frames

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

var (
	interpreterFile = regexp.MustCompile(`^(lib)?python[0-9.]*[a-z]{0,3}(\.so[0-9.]*)?( \(deleted\))?$`)
	standardLibrary = regexp.MustCompile(`(^|/)(lib|lib64)/python[0-9.]+[a-z]?/|(^|/)python[0-9]+\.zip/`)
	installed       = regexp.MustCompile(`(^|/)(site|dist)-packages/`)

	// Libraries that allocate on behalf of others.
	knownLibrary = regexp.MustCompile(`^(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|libc\+\+|libgomp|libffi|ld-linux[-\w]*|ld-musl[-\w]*)[-.]` +
		`|^(libcu|libnv|libnccl|libtensorflow|libpython|libcaffe|linux-vdso|\[vdso\])` +
		`|^_ctypes\b|^xla_extension\b|^xla_cuda_plugin\b`)

	// A step of PyTorch's backward pass, whose threads have no Python frames.
	backward = regexp.MustCompile(`Backward\d*::apply\(`)
)

// Visible returns a stack as reports show it, leaf first and never empty. In a stack with Python
// frames, the interpreter's own frames are left out.
func Visible(st callstack.Stacks, id uint64, api string) []callstack.Frame {
	var list []callstack.Frame
	if id != 0 {
		list = st.Stack(id)
	}
	if len(list) == 0 {
		return []callstack.Frame{{Function: api}, {Function: "[no stack]", Mark: true}}
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
// comes from: the first Python frame outside of site-packages and the standard library; else the
// first native frame outside of well-known libraries; else a frame of the backward pass,
// "AddmmBackward0::apply".
func Headline(list []callstack.Frame) int {
	for i := range list {
		if f := &list[i]; f.Python && IsUserFile(f.File) {
			return i
		}
	}
	for _, named := range []bool{true, false} {
		for i := 1; i < len(list); i++ {
			if f := &list[i]; isUserNative(f) && (!named || hasName(f)) {
				return i
			}
		}
	}
	for i := range list {
		if list[i].Python || backward.MatchString(list[i].Function) {
			return i
		}
	}
	return 0
}

// IsUserFile reports whether a Python file is neither in site-packages nor in the standard library.
func IsUserFile(file string) bool {
	return !strings.HasPrefix(file, "<frozen ") && !installed.MatchString(file) && !standardLibrary.MatchString(file)
}

// IsUser reports whether a frame is the user's own code, in Python or native.
func IsUser(f *callstack.Frame) bool {
	if f.Python {
		return IsUserFile(f.File)
	}
	return isUserNative(f) && hasName(f)
}

func isUserNative(f *callstack.Frame) bool {
	if f.Python || f.Mark {
		return false
	}
	if f.Mapping == nil {
		return f.Address != 0 // code made at run time
	}
	base := path.Base(f.Mapping.Path)
	return !callstack.IsTorch(base) && !knownLibrary.MatchString(base) && !interpreterFile.MatchString(base) && !installed.MatchString(f.Mapping.Path)
}

// hasName reports false for "lib.so+0x1234" and for _start.
func hasName(f *callstack.Frame) bool {
	return f.Function != "_start" && !(f.File == "" && strings.Contains(f.Function, "+0x"))
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
