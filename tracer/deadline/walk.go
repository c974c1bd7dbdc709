// SPDX-License-Identifier: Apache-2.0

package deadline

import (
	"context"
	"fmt"
	"time"
)

// Limits bound a walk: many reads of one process, and work on what they returned. A walk that gets
// no processor costs the machine nothing and goes on; a process that delays it ends it.
type Limits struct {
	Processor time.Duration // that the walk uses
	Waiting   time.Duration // of its reads for the process, which may deliver each page late
	Total     time.Duration // on the clock, without times in which this process is stopped
}

// Use is what a walk has used of its Limits.
type Use Limits

// LimitError is the limit that ended a walk.
type LimitError struct {
	Limits Limits
	Used   Use
	Still  time.Duration // for which the last read has waited
}

// Error returns the cause: "the process delays reads of its memory: they waited for 10s".
func (e *LimitError) Error() string {
	switch {
	case e.Used.Waiting >= e.Limits.Waiting && e.Still >= e.Limits.Waiting/2:
		return fmt.Sprintf("%v: one has waited for %v", ErrStuck, round(e.Still))
	case e.Used.Waiting >= e.Limits.Waiting:
		return fmt.Sprintf("the process delays reads of its memory: they waited for %v", round(e.Used.Waiting))
	case e.Used.Processor >= e.Limits.Processor:
		return fmt.Sprintf("its memory takes more than %v of a processor to read", e.Limits.Processor)
	}
	return fmt.Sprintf("the machine is too busy: in %v, the walk had a processor for %v", round(e.Used.Total), round(e.Used.Processor))
}

// isBusy reports whether others used the processors.
func (e *LimitError) isBusy() bool {
	return e.Used.Waiting < e.Limits.Waiting && e.Used.Processor < e.Limits.Processor
}

// Is makes a process that delays reads an ErrStuck.
func (e *LimitError) Is(target error) bool {
	return target == ErrStuck && e.Used.Waiting >= e.Limits.Waiting
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }

// A walk whose context is done has to return: grace is what it may use of each limit meanwhile, and
// graceTotal on the clock.
const (
	grace      = time.Second
	graceTotal = 10 * time.Second
)

// lookEvery is how often a walk is looked at.
const lookEvery = 50 * time.Millisecond

// Walk runs f until it returns, ctx is done, or a limit is reached. Then the context of f is done,
// with a *LimitError or the cause of ctx, and f should return what it has. If it does not, Walk
// returns that cause; f keeps running, so it must not touch data that the caller uses. A panic of f
// becomes an error. Goroutines of f that read call Join.
func Walk[T any](ctx context.Context, l Limits, f func(context.Context) (T, error)) (T, error) {
	var none T
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	m := &meter{}
	within := context.WithValue(ctx, meterKey{}, m)
	answers := start(func() (T, error) {
		defer m.join()()
		return f(within)
	})
	if answers == nil {
		return none, ErrFull
	}
	// A stop of this process, or a look that is late, counts as one turn.
	w, every, most := watch{limits: l}, min(lookEvery, l.Waiting/turns), l.Waiting/turns
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for last := time.Now(); ; {
		select {
		case a := <-answers:
			return a.value, a.err
		case <-ticks.C:
		}
		now := time.Now()
		over := w.look(min(now.Sub(last), most), m.processor(), m.waits())
		last = now
		switch {
		case ctx.Err() == nil && over != nil:
			cancel(over)
			w.extend()
		case ctx.Err() == nil:
		case !w.ending:
			w.extend()
		case over != nil:
			abandon(answers)
			return none, context.Cause(ctx)
		}
	}
}

// watch sums what a walk uses.
type watch struct {
	limits Limits
	used   Use
	still  time.Duration // since when it waits without having run
	ending bool          // extend was called
}

// look adds the time since the last look, at whose end the walk waits or not; it has used the
// processor for so long in all. It returns the limit that is reached, or nil.
func (w *watch) look(passed, processor time.Duration, waits bool) *LimitError {
	w.used.Total += passed
	if processor != w.used.Processor || !waits {
		w.still = 0
	}
	if waits {
		w.still += passed
		w.used.Waiting += passed
	}
	w.used.Processor = processor
	if l := w.limits; w.used.Processor < l.Processor && w.used.Waiting < l.Waiting && w.used.Total < l.Total {
		return nil
	}
	return &LimitError{Limits: w.limits, Used: w.used, Still: w.still}
}

// extend sets the limits in which a walk has to return.
func (w *watch) extend() {
	w.ending = true
	w.limits = Limits{w.used.Processor + grace, w.used.Waiting + grace, w.used.Total + graceTotal}
}
