// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/panics"
)

// Live finds steps while a session goes on. It is a ledger.Books, whose Apply and Tell only copy: a
// Finder gets the copies later, when the stacks of the events have been read, in another goroutine.
// Its memory is bounded, however long the session is. Any goroutine may call its methods; of a nil
// Live, Steps and Warnings return nil.
type Live struct {
	defects panics.List
	found   atomic.Pointer[Session] // the latest; nil before Begin, and after a panic

	mu    sync.Mutex // guards what follows; never held for long
	queue []change
	over  bool // the queue was full: what came then is missing
	armed bool // a timer runs

	sampling ledger.Sampling // of the latest opSampling

	finding sync.Mutex // guards what follows; taken before mu
	finder  *Finder    // nil before Begin, and after a panic
	next    []change   // of which the stacks may be missing
	spare   []change
}

// Limits of a Live. The queue has the events of livePause, of 56 bytes each.
const (
	maxQueue    = 1 << 18
	liveSteps   = 512     // records of a process
	liveBlocks  = 1 << 18 // live sampled tensors
	liveEnded   = 128     // processes that have ended: the latest
	maxLiveLost = 64      // processes of one input whose losses count
)

// livePause is how long events wait at least for their stacks, which come by another ring.
const livePause = 500 * time.Millisecond

// change is what a Finder needs of an event or an input.
type change struct {
	time, address, size, stack, allocated uint64
	pid                                   uint32
	device                                int32
	op                                    ledger.Op
	kind                                  ledger.Kind
	told                                  ledger.Told
	halvings                              uint8
}

// Inputs among changes. Numbers of events are below.
const (
	opRate ledger.Op = 255 - iota // size is the mean
	opSampling
	opUntraced // of pid, 0: of all
	opLost     // events of pid
	opForget   // processes that ended before time
)

// Warnings returns sentences about internal errors.
func (l *Live) Warnings() []string {
	if l == nil {
		return nil
	}
	return l.defects.Warnings()
}

// Begin sets where the stacks of events are. What came before waits for it.
func (l *Live) Begin(stacks callstack.Stacks) {
	l.finding.Lock()
	defer l.finding.Unlock()
	l.finder = newFinder(stacks, nil, limits{steps: liveSteps, blocks: liveBlocks, ended: liveEnded, latest: true})
}

// Apply implements ledger.Books.
func (l *Live) Apply(e *ledger.Event) {
	if e.Op != ledger.Exit && e.Op != ledger.Exec && !isOfTensors(e) {
		return
	}
	l.add(change{e.Time, e.Address, e.Size, e.Stack, e.Allocated, e.PID, e.Device, e.Op, e.Kind, e.Told, e.Halvings})
}

// isOfTensors reports whether a Finder looks at an event, unless it ends a process.
func isOfTensors(e *ledger.Event) bool {
	return e.Space == ledger.Blocks && e.Device != ledger.CPUDevice && (e.Op == ledger.Alloc && e.Kind == ledger.Tensor || e.Op == ledger.Free || e.Op == ledger.Totals)
}

// Tell implements ledger.Books.
func (l *Live) Tell(in ledger.Input) {
	switch in := in.(type) {
	case ledger.SampleRate:
		l.add(change{op: opRate, size: in.Mean})
	case ledger.Sampling:
		l.mu.Lock()
		l.sampling = slices.Clone(in)
		l.mu.Unlock()
		l.add(change{op: opSampling})
	case ledger.Untraced:
		l.add(change{op: opUntraced, pid: in.PID})
	case ledger.Forget:
		l.add(change{op: opForget, time: in.Before})
	case ledger.Stats:
		told := 0
		for pid, n := range in.LostBy {
			if n > 0 && told < maxLiveLost {
				told++
				l.add(change{op: opLost, pid: pid})
			}
		}
	}
}

func (l *Live) add(c change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over = l.over || len(l.queue) >= maxQueue; l.over {
		return
	}
	l.queue = append(l.queue, c)
	l.arm()
}

// arm has the queue read later. l.mu is held.
func (l *Live) arm() {
	if !l.armed {
		l.armed = true
		time.AfterFunc(livePause, l.read)
	}
}

// read gives the Finder what has waited for long enough.
func (l *Live) read() {
	l.finding.Lock()
	defer l.finding.Unlock()
	l.mu.Lock()
	l.armed = false
	l.mu.Unlock()
	l.advance()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) > 0 || len(l.next) > 0 {
		l.arm()
	}
}

// advance gives the Finder the changes that came before it was called last. l.finding is held.
func (l *Live) advance() {
	if l.finder == nil {
		return
	}
	l.mu.Lock()
	newer, over := l.queue, l.over
	l.queue, l.over = l.spare[:0], false
	l.mu.Unlock()
	l.spare = l.take(l.next)
	l.next = newer
	if over {
		l.next = append(l.next, change{op: opUntraced})
	}
}

// take gives changes to the Finder, and returns their room. A panic ends the search.
func (l *Live) take(list []change) []change {
	defer func() {
		if x := recover(); x != nil {
			l.finder = nil
			l.found.Store(nil)
			l.defects.Note("the steps of trainings", x)
		}
	}()
	var e ledger.Event
	for i := range list {
		switch c := &list[i]; c.op {
		case opRate:
			l.finder.Tell(ledger.SampleRate{Mean: c.size})
		case opSampling:
			l.mu.Lock()
			in := l.sampling
			l.mu.Unlock()
			l.finder.Tell(in)
		case opUntraced:
			l.finder.untraced(c.pid)
		case opLost:
			l.finder.lost(c.pid)
		case opForget:
			l.finder.forget(c.time)
		default:
			e = ledger.Event{
				Op: c.op, Kind: c.kind, Space: ledger.Blocks, PID: c.pid, Device: c.device, Time: c.time, Address: c.address, Size: c.size, Stack: c.stack,
				Told: c.told, Allocated: c.allocated, Halvings: c.halvings,
			}
			l.finder.Apply(&e)
		}
	}
	return list[:0]
}

// Steps returns the steps up to at most two pauses ago, or, while the Finder is busy, those that it
// returned last. At the end of a session, when all stacks have come, it returns those of all
// events. The result does not change.
func (l *Live) Steps(ended bool) *Session {
	if l == nil {
		return nil
	}
	if ended {
		l.finding.Lock()
		l.advance()
		l.advance()
	} else if !l.finding.TryLock() {
		return l.found.Load()
	}
	defer l.finding.Unlock()
	if l.finder != nil {
		l.found.Store(&Session{List: l.finder.look()})
	}
	return l.found.Load()
}
