// SPDX-License-Identifier: Apache-2.0

package purpose

import (
	"cmp"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/purpose/phase"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// byStack is what the stack of a site shows. Kind is Tensors if it shows no purpose.
type byStack struct {
	kind   Kind
	module string // of Activations
	name   string // of Workspaces: the library, and the stream where it is not the main one: "cuBLAS on stream 1"
	line   string // of Workspaces: the user's code that first called the library with this handle and stream
	input  bool   // a tensor is made or copied to the GPU from nothing that is there
}

// stackReader reads the stacks of sites once.
type stackReader struct {
	s     *ledger.Snapshot
	st    callstack.Stacks
	find  phase.Finder
	known map[uint64]byStack
	runs  map[int]bool // by process: see runsModel
	rules fittingRules
}

func newStackReader(s *ledger.Snapshot, st callstack.Stacks) *stackReader {
	return &stackReader{s: s, st: st, known: map[uint64]byStack{}, runs: map[int]bool{}, rules: fittingRules{}}
}

// of returns what the stack of a tensor shows.
func (r *stackReader) of(x *ledger.Site) byStack {
	if x.Stack == 0 || r.st == nil {
		return byStack{kind: Tensors}
	}
	b, known := r.known[x.Stack]
	if !known {
		b = r.read(r.st.Stack(x.Stack))
		if b.kind == Workspaces {
			stack := frames.Visible(r.st, x.Stack, x.API)
			b.name, b.line = workspaceLibrary(stack), userLine(stack, false)
		}
		r.known[x.Stack] = b
	}
	if b.kind == Inputs && !r.runsModel(x.Process) {
		b.kind = Tensors
	}
	return b
}

// workspaceLibrary returns whose workspace PyTorch allocates, as its functions are called.
func workspaceLibrary(stack []callstack.Frame) string {
	for i := range stack {
		switch f := &stack[i]; {
		case f.Python:
		case strings.Contains(f.Function, "CUDABlasLt"):
			return "cuBLASLt"
		case strings.Contains(f.Function, "CUDABlas"), strings.Contains(f.Function, "cuda::blas::"):
			return "cuBLAS"
		case strings.Contains(f.Function, "CUDASolver"):
			return "cuSOLVER"
		case strings.Contains(f.Function, "CUDASparse"):
			return "cuSPARSE"
		}
	}
	return ""
}

// runsModel reports whether a stack of the process shows a model: what a program makes without one
// is no input.
func (r *stackReader) runsModel(process int) bool {
	if r.s == nil {
		return true
	}
	runs, known := r.runs[process]
	if !known {
		r.runs[process] = true // meanwhile, inputs are of no interest
		runs = slices.ContainsFunc(r.s.Sites, func(x ledger.Site) bool {
			if x.Process != process || x.Kind != ledger.Tensor {
				return false
			}
			switch r.of(&x).kind {
			case Activations, Backward, Gradients, State, Weights:
				return true
			}
			return false
		})
		r.runs[process] = runs
	}
	return runs
}

func (r *stackReader) read(stack []callstack.Frame) byStack {
	t := r.find.Of(stack)
	b := byStack{kind: kindOf(&t), input: t.IsInput()}
	if len(t.Calls) > 0 {
		b.module = moduleName(stack, &t)
	}
	return b
}

// kindOf returns the purpose of what is allocated with a trait, as far as the stack alone shows it.
func kindOf(t *phase.Trait) Kind {
	switch t.Object {
	case phase.Workspace:
		return Workspaces
	case phase.OptimizerState:
		return State
	case phase.Parameter:
		return Weights
	case phase.Gradient, phase.Bucket:
		return Gradients
	}
	switch {
	case t.Phase == phase.Forward, t.Phase == phase.Recompute:
		return Activations
	case t.Phase == phase.Backward:
		return Backward
	case t.IsInput():
		return Inputs
	}
	return Tensors
}

// moduleName returns "Block.forward (model.py:88)": the innermost module of the program's own code,
// with its line, else the innermost.
func moduleName(stack []callstack.Frame, t *phase.Trait) string {
	c, ok := t.Module(func(i int) bool { return frames.IsUser(&stack[i]) })
	if !ok {
		return ""
	}
	f := &stack[c.Frame]
	return lineOf(f, cmp.Or(f.StartLine, f.Line))
}

// lineOf returns "Block.forward (model.py:88)".
func lineOf(f *callstack.Frame, line int) string {
	name := frames.Name(f)
	if file := frames.ShortFile(f.File); file != "" && line > 0 {
		name += " (" + path.Base(file) + ":" + strconv.Itoa(line) + ")"
	}
	return name
}

// divider divides a snapshot.
type divider struct {
	s      *ledger.Snapshot
	stacks *stackReader
}

// part is a ledger.Part, or one made of the books where NVML has no figure.
type part struct {
	ledger.Part
	read bool
}

// isOn reports whether a device of the process is that of a part.
func (d *divider) isOn(x *part, device int32) bool {
	if b := d.s.BalanceOf(x.Process, device); b >= 0 && x.UUID != "" {
		return d.s.Balances[b].UUID == x.UUID
	}
	return device == x.Device
}
