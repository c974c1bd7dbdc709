// SPDX-License-Identifier: Apache-2.0

package purpose

import (
	"cmp"
	"strconv"

	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/purpose/phase"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// byStack is what the stack of a site shows. Kind is Tensors if it shows no purpose.
type byStack struct {
	kind   Kind
	module string // of Activations
	input  bool   // a tensor is made or copied to the GPU from nothing that is there
}

// stackReader reads the stacks of sites once.
type stackReader struct {
	s     *ledger.Snapshot
	st    callstack.Stacks
	find  phase.Finder
	known map[uint64]byStack
}

func newStackReader(s *ledger.Snapshot, st callstack.Stacks) *stackReader {
	return &stackReader{s: s, st: st, known: map[uint64]byStack{}}
}

// of returns what the stack of a tensor shows.
func (r *stackReader) of(x *ledger.Site) byStack {
	if x.Stack == 0 || r.st == nil {
		return byStack{kind: Tensors}
	}
	b, known := r.known[x.Stack]
	if !known {
		b = r.read(r.st.Stack(x.Stack))
		r.known[x.Stack] = b
	}
	return b
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
		name += " (" + base(file) + ":" + strconv.Itoa(line) + ")"
	}
	return name
}

func base(file string) string {
	for i := len(file) - 1; i >= 0; i-- {
		if file[i] == '/' {
			return file[i+1:]
		}
	}
	return file
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
