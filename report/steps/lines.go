// SPDX-License-Identifier: Apache-2.0

package steps

import "github.com/vramprof/vramprof/report/purpose/phase"

// block is a live sampled tensor.
type block struct {
	size     uint64
	context  uint32 // of a forward pass
	interval uint32
	backward bool // allocated in a backward pass
	// Allocated in an optimizer's step.
	optimizer bool
	// How many tensors its backward pass had allocated before, or optimizers had made steps.
	born uint32
}

// lines are the lines of a process that call models, by context. They tell forward passes without
// gradients apart: torch.no_grad() leaves no frame, but also nothing for the next backward pass.
type lines struct {
	by       map[uint32]*line
	ran      []uint32 // since the last backward pass
	interval uint32   // counts the times between two, from 1 on
}

func newLines() *lines { return &lines{by: map[uint32]*line{}, interval: 1} }

// line is a line that calls models.
type line struct {
	allocated, live uint64 // in the current interval
	interval        uint32 // the latest in which it ran
	ran             uint32 // how many intervals
	module          bool
	judged, saved   bool // what it allocated was seen, or not, when a backward pass began
}

// allocated books an allocation of a forward pass.
func (l *lines) allocated(context uint32, module bool, size uint64) {
	x := l.by[context]
	if x == nil {
		x = &line{}
		l.by[context] = x
	}
	if x.interval != l.interval {
		x.interval, x.allocated, x.live = l.interval, 0, 0
		x.ran++
		l.ran = append(l.ran, context)
	}
	x.module = x.module || module
	x.allocated += size
	x.live += size
}

// freed books the end of a block.
func (l *lines) freed(b block) {
	if x := l.by[b.context]; x != nil && b.interval == l.interval {
		x.live -= min(x.live, b.size)
	}
}

// judge is called when a backward pass begins. Lines ran without gradients if little is left of
// what they allocated. One of those that ran must have been for this backward pass.
func (l *lines) judge() {
	var most uint64
	for _, c := range l.ran {
		most = max(most, l.by[c].live)
	}
	for _, c := range l.ran {
		x := l.by[c]
		x.judged = true
		x.saved = x.saved || x.live == most || x.live >= x.allocated/8
	}
	l.ran = l.ran[:0]
	l.interval++
}

// withoutGradients reports whether a run is a forward pass that no backward pass follows: of a
// model, or of a function such as a loss after one.
func (l *lines) withoutGradients(r *Run, after bool) bool {
	x := l.by[r.context]
	return r.Phase == phase.Forward && x != nil && (x.module || after) && x.judged && !x.saved
}

// isUsual reports whether a line runs in most steps, such as the teacher of a distillation.
func (l *lines) isUsual(context uint32) bool {
	x := l.by[context]
	return x != nil && 2*x.ran > l.interval
}
