// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"sync"
	"time"

	"github.com/vramprof/vramprof/symbolize/callstack"
)

const (
	maxStacks  = 1 << 20 // with names
	askAgain   = 200 * time.Millisecond
	maxAsked   = 50 // lookups per stack before the end of the session
	tableBytes = 1 << 20
)

// names finds the names of stacks in a separate goroutine: the first stack of a large library can
// take seconds.
type names struct {
	ready chan struct{} // signals that there is something to write
	wake  chan struct{}
	stop  chan struct{}
	done  chan struct{}

	mu      sync.Mutex // guards the fields below
	source  callstack.Stacks
	known   map[uint64]bool
	pending []pending
	late    []pending
	named   []namedStack
	started bool

	coder stackCoder // used by the writing goroutine
}

type pending struct {
	id    uint64
	asked int
}

type namedStack struct {
	id     uint64
	frames []callstack.Frame
}

func newNames() *names {
	return &names{
		ready: make(chan struct{}, 1), wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
		known: map[uint64]bool{0: true}, coder: newStackCoder(),
	}
}

func (n *names) begin(source callstack.Stacks) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.source = source
	if !n.started {
		n.started = true
		go n.run()
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// want requests the names of new stacks.
func (n *names) want(ids []uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, id := range ids {
		if !n.known[id] && len(n.known) <= maxStacks {
			n.known[id] = true
			n.pending = append(n.pending, pending{id: id})
		}
	}
	if len(n.pending) > 0 {
		signal(n.wake)
	}
}

func (n *names) run() {
	defer close(n.done)
	again := time.NewTimer(time.Hour)
	defer again.Stop()
	for {
		select {
		case <-n.wake:
		case <-again.C:
		case <-n.stop:
			return
		}
		if n.ask() {
			again.Reset(askAgain)
		}
	}
}

// ask looks up each stack once and reports whether some are still missing.
func (n *names) ask() bool {
	n.mu.Lock()
	list := n.pending
	n.pending = nil
	n.mu.Unlock()
	var missing, late []pending
	for i, p := range list {
		select {
		case <-n.stop:
			missing = append(missing, list[i:]...)
			n.put(missing, late)
			return false
		default:
		}
		frames := n.source.Stack(p.id)
		if p.asked++; len(frames) > 0 {
			n.mu.Lock()
			n.named = append(n.named, namedStack{p.id, frames})
			n.mu.Unlock()
			signal(n.ready)
		} else if p.asked < maxAsked {
			missing = append(missing, p)
		} else {
			late = append(late, p)
		}
	}
	n.put(missing, late)
	return len(missing) > 0
}

func (n *names) put(missing, late []pending) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pending = append(n.pending, missing...)
	n.late = append(n.late, late...)
}

// close ends the goroutine. finish writes the rest.
func (n *names) close() {
	n.mu.Lock()
	started := n.started
	n.mu.Unlock()
	close(n.stop)
	if started {
		<-n.done
	}
}

// finish looks up missing stacks a last time and writes everything.
func (n *names) finish(d *disk) error {
	if n.source != nil {
		for _, p := range append(n.pending, n.late...) {
			if frames := n.source.Stack(p.id); len(frames) > 0 {
				n.named = append(n.named, namedStack{p.id, frames})
			}
		}
	}
	return n.write(d)
}

// write writes the stacks that have names.
func (n *names) write(d *disk) error {
	n.mu.Lock()
	list := n.named
	n.named = nil
	n.mu.Unlock()
	for len(list) > 0 {
		n.coder.begin()
		for len(list) > 0 && n.coder.size < tableBytes {
			n.coder.add(list[0].id, list[0].frames)
			list = list[1:]
		}
		if err := d.stacks(n.coder.m); err != nil {
			return err
		}
	}
	return nil
}
