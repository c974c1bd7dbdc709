// SPDX-License-Identifier: Apache-2.0

// Package holders finds out who keeps the GPU memory of a running PyTorch: for each storage the
// Python path that keeps it alive, such as "model.layers.3.fc1.weight" or "Trainer.history[*]". It
// only reads memory: the process is not stopped, and no code runs in it. It copies what is resident,
// finds CPython's objects and PyTorch's in the copy, and searches the cheapest path from modules
// and frames to each storage.
//
// Everything that is read is hostile. Counts, bytes, depths and times are bounded; a process that
// changes its memory on purpose only spoils the answer about itself.
package holders

import (
	"context"
	"errors"
	"time"

	"github.com/vramprof/vramprof/tracer/holders/peek"
)

const (
	// DefaultMemory is the most that a walk copies by default: 1 GiB.
	DefaultMemory = 1 << 30
	// DefaultObjects is the most objects that a walk looks at by default.
	DefaultObjects = 20 << 20
	// DefaultTime is the longest that a walk takes by default.
	DefaultTime = 30 * time.Second
)

// ErrExec reports a process that has executed another program while it was read.
var ErrExec = errors.New("it executed another program while it was read")

// Walk finds who holds each storage of a process. If the process changed meanwhile and many bytes
// have no holder, Walk reads it once more, and returns the result with fewer such bytes.
func Walk(ctx context.Context, mem peek.Memory, o Options) (*Result, error) {
	if o.MaxMemory == 0 {
		o.MaxMemory = DefaultMemory
	}
	if o.MaxObjects <= 0 {
		o.MaxObjects = DefaultObjects
	}
	o.MaxObjects = min(o.MaxObjects, 1<<30)
	if o.MaxTime <= 0 {
		o.MaxTime = DefaultTime
	}
	ctx, cancel := context.WithTimeout(ctx, o.MaxTime)
	defer cancel()
	begin := time.Now()
	first, torn, err := once(ctx, mem, o)
	if err != nil || !torn {
		return first, err
	}
	second, _, err := once(ctx, mem, o)
	if errors.Is(err, ErrExec) {
		return nil, err
	}
	best := first
	if err == nil && second.pathless() < first.pathless() {
		best = second
	}
	best.Problems = append(best.Problems, "the process changed while it was read, and was read twice")
	best.Times.Total = time.Since(begin)
	return best, nil
}

// once walks once. torn reports that a second walk may find more.
func once(ctx context.Context, mem peek.Memory, o Options) (result *Result, torn bool, err error) {
	w := &walk{Options: o, ctx: ctx, mem: mem, begin: time.Now(), result: &Result{At: time.Now()}}
	p, running := mem.(*peek.Process)
	if running {
		w.result.Execution = p.Execution()
	}
	if c, is := mem.(*peek.Copy); is {
		w.copy, w.mem = c, c.Memory()
	} else {
		w.copy = peek.NewCopy(mem, o.MaxMemory)
		defer w.copy.Close()
		if err := w.copy.Take(ctx); err != nil {
			return nil, false, err
		}
	}
	w.live, _ = w.mem.(*peek.Process)
	if err := w.run(ctx); err != nil {
		return nil, false, &WalkError{err}
	}
	if running && w.result.Execution.Differs(p.Execution()) {
		return nil, false, ErrExec
	}
	return w.result, running && w.changed && w.result.pathless() > maxPathless, nil
}

// maxPathless is the share of bytes without a holder above which a walk is repeated if lists or
// containers changed meanwhile: a list that grew while it was copied loses all that it holds.
const maxPathless = 0.05
