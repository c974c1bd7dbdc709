// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"sync"
	"time"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/capture/internal/wire"
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

// stackCoder holds the tables shared by all frames with stacks.
type stackCoder struct {
	texts    map[string]uint32
	mappings map[callstack.Mapping]uint32
	lines    map[line]uint32
	m        *wire.Stacks // the frame being built
	size     int          // approximate size of m in bytes
	address  uint64
}

// line is a frame by indexes.
type line struct {
	function, system, file uint32
	number, start          int32
	address                uint64
	mapping, flags         uint32
}

const (
	flagPython = 1 << iota
	flagInlined
	flagMark
)

func newStackCoder() stackCoder {
	return stackCoder{texts: map[string]uint32{"": 0}, mappings: map[callstack.Mapping]uint32{}, lines: map[line]uint32{}}
}

func (c *stackCoder) begin() {
	c.m = &wire.Stacks{FirstText: uint32(len(c.texts)), FirstMapping: uint32(len(c.mappings)), FirstLine: uint32(len(c.lines))}
	c.size, c.address = 0, 0
}

func (c *stackCoder) add(id uint64, frames []callstack.Frame) {
	for i := range frames {
		c.m.Line = append(c.m.Line, c.line(&frames[i]))
	}
	c.m.Id, c.m.Depth = append(c.m.Id, id), append(c.m.Depth, uint32(len(frames)))
	c.size += 12 + 4*len(frames)
}

func (c *stackCoder) line(f *callstack.Frame) uint32 {
	k := line{
		function: c.text(f.Function), system: c.text(f.SystemName), file: c.text(f.File),
		number: int32(f.Line), start: int32(f.StartLine), address: f.Address, mapping: c.mapping(f.Mapping),
	}
	if f.Python {
		k.flags |= flagPython
	}
	if f.Inlined {
		k.flags |= flagInlined
	}
	if f.Mark {
		k.flags |= flagMark
	}
	if n, ok := c.lines[k]; ok {
		return n
	}
	n := uint32(len(c.lines))
	c.lines[k] = n
	m := c.m
	m.Function, m.SystemName, m.File = append(m.Function, k.function), append(m.SystemName, k.system), append(m.File, k.file)
	m.Number, m.Start, m.Mapping, m.Flags = append(m.Number, k.number), append(m.Start, k.start), append(m.Mapping, k.mapping), append(m.Flags, k.flags)
	m.Address = append(m.Address, int64(k.address-c.address))
	c.address = k.address
	c.size += 24
	return n
}

func (c *stackCoder) text(s string) uint32 {
	n, ok := c.texts[s]
	if !ok {
		n = uint32(len(c.texts))
		c.texts[s] = n
		c.m.Text = append(c.m.Text, []byte(s))
		c.size += len(s) + 4
	}
	return n
}

// mapping returns an index + 1.
func (c *stackCoder) mapping(m *callstack.Mapping) uint32 {
	if m == nil {
		return 0
	}
	n, ok := c.mappings[*m]
	if !ok {
		n = uint32(len(c.mappings))
		c.mappings[*m] = n
		c.m.MappingPath, c.m.MappingBuild = append(c.m.MappingPath, c.text(m.Path)), append(c.m.MappingBuild, c.text(m.BuildID))
		c.m.MappingStart, c.m.MappingLimit = append(c.m.MappingStart, m.Start), append(c.m.MappingLimit, m.Limit)
		c.m.MappingOffset = append(c.m.MappingOffset, m.Offset)
		c.size += 32
	}
	return n + 1
}
