// SPDX-License-Identifier: Apache-2.0

package remedy

import (
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/vramprof/vramprof/symbolize/callstack"
)

// role is what a program does where it allocates.
type role uint8

const (
	other     role = iota // prepares a batch, evaluates a result
	loading               // makes the weights of a model
	forward               // calls a module
	optimizer             // makes a step of the optimizer
)

// site is what is known of one stack trace.
type site struct {
	role     role
	backward bool // on a thread of autograd's engine, or below it: role is forward where it recomputes

	accumulates bool // copies a gradient, because the backward pass did not own it
	cast        bool // of autocast
	workspace   bool // of cuBLAS
	operation   operation
}

// operation is an operation of PyTorch that allocates more than its output.
type operation uint8

const (
	plain     operation = iota
	dropout             // its mask has a byte for each element
	pooling             // its indices have eight bytes for each element
	normalize           // its statistics have four bytes for each row
)

var (
	engine       = regexp.MustCompile(`^torch::autograd::(Engine|python::PythonEngine)::`)
	cublas       = regexp.MustCompile(`(?i)cublas\w*(Create|Handle|Workspace)|getNewWorkspace|chosenWorkspaceSize`)
	inOptim      = regexp.MustCompile(`(^|/)torch/optim/[^/]+\.py$`)
	inModules    = regexp.MustCompile(`(^|/)torch/nn/(modules/[^/]+|functional|parallel/[^/]+|parameter)\.py$`)
	inFunctional = regexp.MustCompile(`(^|/)torch/nn/functional\.py$`)
	ofModule     = regexp.MustCompile(`(^|/)torch/nn/modules/module\.py$`)
)

func siteOf(stack []callstack.Frame) (s site) {
	for i := range stack {
		f := &stack[i]
		if f.Python {
			if s.role == other {
				s.role = roleOf(f)
			}
			continue
		}
		name, _, _ := strings.Cut(f.Function, "(")
		switch {
		case engine.MatchString(name):
			s.backward = true
		case strings.HasPrefix(name, "torch::autograd::AccumulateGrad::"):
			s.accumulates = true
		case strings.HasPrefix(name, "at::autocast::"):
			s.cast = true
		case strings.Contains(name, "::native_dropout::"):
			s.operation = dropout
		case strings.Contains(name, "_pool") && strings.Contains(name, "_with_indices::"):
			s.operation = pooling
		case strings.Contains(name, "::native_layer_norm::"), strings.Contains(name, "::native_batch_norm::"), strings.Contains(name, "::native_group_norm::"):
			s.operation = normalize
		case cublas.MatchString(name):
			s.workspace = true
		}
	}
	return s
}

// roleOf returns what one Python frame proves.
func roleOf(f *callstack.Frame) role {
	name := method(f.Function)
	switch {
	case inOptim.MatchString(f.File):
		return optimizer
	case ofModule.MatchString(f.File) && (name == "convert" || name == "_apply"),
		inModules.MatchString(f.File) && (name == "__init__" || name == "__new__" || name == "reset_parameters"):
		return loading
	case ofModule.MatchString(f.File) && (name == "_call_impl" || name == "inner"),
		inModules.MatchString(f.File) && name == "forward", inFunctional.MatchString(f.File):
		return forward
	}
	return other
}

// method returns a function without its class: "Block.forward" gives "forward".
func method(function string) string {
	return function[strings.LastIndexByte(function, '.')+1:]
}

// Function matches the calls of a Python function: NAME, as Python names it ("Block.forward"), or
// FILE:NAME.
type Function struct{ file, name string }

// ParseFunction reads a Function.
func ParseFunction(text string) Function {
	if i := strings.LastIndexByte(text, ':'); i >= 0 {
		return Function{text[:i], text[i+1:]}
	}
	return Function{name: text}
}

func (m Function) String() string {
	if m.file == "" {
		return m.name
	}
	return m.file + ":" + m.name
}

func (m Function) matches(f *callstack.Frame) bool {
	return f.Python && (f.Function == m.name || strings.HasSuffix(f.Function, "."+m.name)) && (m.file == "" || isFile(f.File, m.file))
}

// outermost returns the index of the outermost frame that matches, or -1.
func (m Function) outermost(stack []callstack.Frame) int {
	for i := len(stack) - 1; i >= 0; i-- {
		if m.matches(&stack[i]) {
			return i
		}
	}
	return -1
}

// Line is a line of a program.
type Line struct {
	File string // its path, or the end of its path
	Line int
}

// ParseLine reads FILE:LINE.
func ParseLine(text string) (Line, bool) {
	i := strings.LastIndexByte(text, ':')
	if i <= 0 {
		return Line{}, false
	}
	n, err := strconv.Atoi(text[i+1:])
	return Line{text[:i], n}, err == nil && n > 0
}

func (l Line) String() string { return l.File + ":" + strconv.Itoa(l.Line) }

// in reports whether a stack trace goes through the line.
func (l Line) in(stack []callstack.Frame) bool {
	for i := range stack {
		if f := &stack[i]; f.Line == l.Line && isFile(f.File, l.File) {
			return true
		}
	}
	return false
}

// isFile reports whether a path is a file as a user names it: "train.py", "app/train.py".
func isFile(name, as string) bool {
	return name == as || path.Base(name) == as || strings.HasSuffix(name, "/"+as)
}
