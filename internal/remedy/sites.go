// SPDX-License-Identifier: Apache-2.0

package remedy

import (
	"path"
	"strconv"
	"strings"

	"github.com/vramprof/vramprof/internal/lazyregexp"
	"github.com/vramprof/vramprof/report/purpose/phase"
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
	stack    []callstack.Frame // innermost first
	role     role
	backward bool // in a backward pass; role is forward where it recomputes
	stepping bool // of an optimizer of torch.optim, or below its step

	step   Line // that called the optimizer
	number bool // computes floating-point numbers, outside of modules
	input  bool // a batch, or what it is made of

	node    string // of the backward pass, lower case: "addmm" of AddmmBackward0, "pow/1" of PowBackward1; "": none that is generated
	reduces bool   // sums what a node has made to the size of its input, before the node frees what it saved

	accumulates bool // copies a gradient, because the backward pass did not own it
	cast        bool // of autocast
	workspace   bool // of cuBLAS
	operation   operation
	broken      bool            // no stack trace, or a truncated one
	native      bool            // has native frames, without which no backward pass is known
	line        callstack.Frame // the innermost Python frame
	root        string          // the outermost one, which threads differ in; "": unknown
}

// operation is an operation of PyTorch that allocates more than its output.
type operation uint8

const (
	plain     operation = iota
	dropout             // its mask has a byte for each element
	pooling             // its indices have eight bytes for each element
	normalize           // its statistics have four bytes for each row
	reduce              // it sums in four bytes for each element
)

var (
	inOptim = lazyregexp.New(`(^|/)torch/optim/[^/]+\.py$`)

	// numbers are operators whose results are floating-point numbers in a program that trains.
	numbers = lazyregexp.New(`^(log_)?softmax(_int)?$|^(sigmoid|tanh|relu|gelu|silu|exp|log|sqrt|rsqrt|square|pow|mean|var|std|norm|linalg_\w+|mm|bmm|matmul|linear|addmm|baddbmm|conv\w*|dropout|layer_norm|einsum|lerp|erf|normal|randn?|randn_like|rand_like)(_\w+)?$`)

	operations = []struct {
		operator *lazyregexp.Regexp // of at::_ops
		is       operation
	}{
		{lazyregexp.New(`^(native_)?dropout$`), dropout},
		{lazyregexp.New(`_pool\dd_with_indices$`), pooling},
		{lazyregexp.New(`^(native|cudnn|miopen)_(layer|batch|group)_norm$`), normalize},
		{lazyregexp.New(`^(sum|mean|var|std|prod|norm|linalg_vector_norm)(_\w+)?$`), reduce},
	}
)

func siteOf(stack []callstack.Frame, find *phase.Finder) *site {
	s := &site{stack: stack}
	trait := find.Of(stack)
	switch trait.Phase {
	case phase.Setup:
		s.role = loading
	case phase.Forward, phase.Evaluation:
		s.role = forward
	case phase.Recompute:
		s.role, s.backward = forward, true
	case phase.Backward:
		s.backward = true
	case phase.Step:
		s.role = optimizer
	}
	s.workspace = trait.Object == phase.Workspace
	s.number, s.input = numbers.MatchString(trait.Operator), trait.IsInput()
	copies := false
	s.broken = len(stack) == 0
	for i := range stack {
		f := &stack[i]
		s.broken = s.broken || f.Mark
		if f.Python {
			if s.line.Function == "" {
				s.line = *f
			}
			s.root = f.File + " " + f.Function
			if s.role == optimizer && inOptim.MatchString(f.File) {
				s.stepping = true
			} else if s.stepping && s.step.Line == 0 {
				s.step = Line{f.File, f.Line}
			}
			continue
		}
		s.native = true
		name, _, _ := strings.Cut(f.Function, "(")
		if node, ok := strings.CutPrefix(name, "torch::autograd::generated::"); ok && s.node == "" {
			node, rest, _ := strings.Cut(node, "Backward")
			s.node = strings.ToLower(node)
			if number, _, _ := strings.Cut(rest, "::"); number != "0" && number != "" {
				s.node += "/" + number
			}
		}
		s.reduces = s.reduces || strings.HasPrefix(name, "torch::autograd::InputMetadata::") || strings.HasPrefix(name, "torch::autograd::validate_outputs")
		s.accumulates = s.accumulates || strings.HasPrefix(name, "torch::autograd::AccumulateGrad::")
		s.workspace = s.workspace || strings.Contains(name, "CUDABlasHandle") // makes the workspace, whose function has no symbol
		copies = copies || strings.HasPrefix(name, "at::_ops::_to_copy::") || strings.HasPrefix(name, "at::_ops::to_dtype::")
		s.cast = s.cast || copies && strings.HasPrefix(name, "at::autocast::")
		if operator, ok := strings.CutPrefix(name, "at::_ops::"); ok && s.operation == plain {
			operator, _, _ = strings.Cut(operator, "::")
			for _, o := range operations {
				if o.operator.MatchString(operator) {
					s.operation = o.is
				}
			}
		}
	}
	if s.broken {
		s.root = ""
	}
	return s
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
