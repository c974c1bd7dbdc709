// SPDX-License-Identifier: Apache-2.0

// Package phase finds from a stack in which phase of a training memory was allocated: in a forward
// pass and of which modules, in a backward pass, in an optimizer's step, or while data was loaded.
// No other package has these rules. They depend on stacks alone.
//
// A stack shows where memory was allocated, not what it is used for: a temporary of a forward pass
// and what autograd saves for the backward pass look the same. `with torch.no_grad():` leaves no
// frame; the decorator does.
package phase

import "github.com/vramprof/vramprof/symbolize/callstack"

// Phase is a part of a program that trains or runs a model.
type Phase uint8

const (
	Unknown    Phase = iota // no frame shows it
	Setup                   // a model is made, loaded or moved
	Data                    // a batch is loaded, or copied to the GPU
	Forward                 // a module or a function of torch.nn is called
	Evaluation              // the same, where a frame shows that no gradients are wanted
	Backward                // the engine of autograd runs
	Recompute               // a forward pass within a backward pass: activation checkpointing
	Step                    // an optimizer's step, with the scaling and clipping of gradients
	ZeroGrad                // gradients are cleared
	Phases                  // how many there are
)

var names = [Phases]string{"", "setup", "data", "forward", "evaluation", "backward", "recompute", "step", "zero_grad"}

// String returns a code: "forward"; "" for Unknown.
func (p Phase) String() string {
	if p >= Phases {
		return ""
	}
	return names[p]
}

// Object is a kind of memory that a stack proves by itself.
type Object uint8

const (
	Nothing        Object = iota
	Parameter             // of a module that is made, loaded or moved; its buffers look the same
	OptimizerState        // what an optimizer allocates for each parameter
	Gradient              // what autograd accumulates
	Bucket                // of DistributedDataParallel, for gradients
	Workspace             // of cuBLAS and the like, from PyTorch's allocator
)

// Call is the forward pass of one module on a stack.
type Call struct {
	Name  string // "Block.forward"; before Python 3.11 "forward"
	Frame int    // its index in the stack
}

// Trait is what a stack shows. All texts are untrusted.
type Trait struct {
	Phase  Phase
	Object Object
	// The modules whose forward pass runs, innermost first; of Recompute without those outside of
	// the backward pass.
	Calls []Call
	// PyTorch's operator that Python or own code called: "softmax_int" of
	// at::_ops::softmax_int::call; "" without one.
	Operator string
	// Activation checkpointing runs a forward pass: what it saves is less than without.
	Checkpointed bool
	// The frame that called the outermost module or function of a forward pass, or the outermost
	// optimizer's step: its index in the stack; -1 without one. It tells apart which loop runs.
	Caller    int
	Optimizer bool // Step is in the step of an optimizer itself: no scaling or clipping of gradients
	// An optimizer runs a forward and a backward pass several times in one step, as LBFGS does.
	InStep bool
}

// Finder finds traits of stacks. It remembers what frames show, since they recur in many stacks.
// The zero value is ready; it is not for several goroutines at once.
type Finder struct{ known map[frameKey]evidence }

// frameKey is all of a frame that its evidence depends on.
type frameKey struct {
	function, file string
	python         bool
}

// maxKnown is the most frames that a Finder remembers.
const maxKnown = 1 << 16

// Of returns what a stack shows, leaf first. Frames of the interpreter may be in it or left out. A
// nil stack shows nothing. It needs time in proportion to the number of frames.
func (d *Finder) Of(stack []callstack.Frame) Trait {
	r := reader{caller: [2]int{-1, -1}}
	for i := range stack {
		if f := &stack[i]; !f.Mark {
			r.frame(f, i, d.evidence(f))
		}
	}
	return r.finish()
}

func (d *Finder) evidence(f *callstack.Frame) evidence {
	key := frameKey{f.Function, f.File, f.Python}
	e, known := d.known[key]
	if !known {
		if d.known == nil {
			d.known = map[frameKey]evidence{}
		}
		e = evidenceOf(f)
		if len(d.known) < maxKnown {
			d.known[key] = e
		}
	}
	return e
}

// reader reads a stack from its leaf to its root: what is nearest to the leaf decides.
type reader struct {
	Trait
	python    *callstack.Frame // the one before, at index last
	last      int
	decorated bool // the frame before, of Python, is the decorator of torch.no_grad() or torch.enable_grad()
	noGrad    bool // functions above the forward pass want no gradients
	backward  bool // a frame of the backward pass was read
	before    Phase
	// The frames that called the forward pass, and an optimizer's step, so far; -1: none.
	caller [2]int
}

// frame reads one frame.
func (r *reader) frame(f *callstack.Frame, i int, e evidence) {
	if r.Object == Nothing && r.Phase == Unknown || e.object == Workspace {
		r.Object = max(r.Object, e.object)
	}
	if e.operator != "" && r.python == nil {
		r.Operator = e.operator
	}
	r.Checkpointed = r.Checkpointed || e.checkpoint && !r.backward
	switch {
	case e.phase == Backward && r.Phase == Forward && !r.backward && (len(r.Calls) > 0 || r.Checkpointed):
		r.Phase = Recompute
	case e.phase == Backward && r.Phase == Forward && !r.backward: // a function of torch.nn in the backward pass of the user's
		r.Phase = Backward
	case r.Phase == Unknown && e.phase != Evaluation:
		r.Phase = e.phase
	}
	r.backward, r.Optimizer = r.backward || e.phase == Backward, r.Optimizer || e.optimizer
	if f.Python {
		r.inPython(f, i, e)
	}
}

func (r *reader) inPython(f *callstack.Frame, i int, e evidence) {
	if e.call && r.python != nil && !r.backward && method(r.python) == "forward" {
		r.Calls = append(r.Calls, Call{r.python.Function, r.last})
	}
	// An optimizer calls the user's closure through the decorator of torch.enable_grad().
	r.noGrad = r.noGrad || r.decorated && e.phase != Step || e.phase == Evaluation && !e.decorator
	r.decorated = e.decorator && r.Phase != Step
	r.call(i, e)
	r.python, r.last = f, i
}

// call notes a frame that calls a forward pass, or an optimizer's step.
func (r *reader) call(i int, e evidence) {
	if e.phase == Forward || e.phase == Step {
		r.before = e.phase
		r.InStep = r.InStep || e.closures
		return
	}
	switch {
	case e.decorator: // it is between
		return
	case r.before == Forward:
		r.caller[0] = i
	case r.before == Step:
		r.caller[1] = i
	}
	r.before = Unknown
}

// finish draws conclusions that need the whole stack.
func (r *reader) finish() Trait {
	switch {
	case r.Phase == Forward && (r.noGrad || r.decorated):
		r.Phase = Evaluation
	case r.Phase == Unknown && toDevice[r.Operator]:
		r.Phase = Data
	}
	switch r.Caller = -1; r.Phase {
	case Forward, Evaluation, Recompute:
		r.Caller = r.caller[0]
	case Step:
		r.Caller = r.caller[1]
	}
	return r.Trait
}

// Module returns the innermost module of the program's own code, for which own reports true; else
// the innermost; false without one.
func (t *Trait) Module(own func(frame int) bool) (Call, bool) {
	for _, c := range t.Calls {
		if own(c.Frame) {
			return c, true
		}
	}
	if len(t.Calls) == 0 {
		return Call{}, false
	}
	return t.Calls[0], true
}

// IsInput reports whether a stack makes a tensor that no other tensor on the GPU is needed for,
// outside of any phase: a batch that is copied to the GPU, or made there.
func (t *Trait) IsInput() bool {
	return t.Phase == Data || t.Phase == Unknown && factories[t.Operator]
}
