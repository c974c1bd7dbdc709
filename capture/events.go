// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"errors"

	"github.com/vramprof/vramprof/capture/internal/wire"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// event is a ledger.Event without pointers, for the garbage collector's sake.
type event struct {
	call
	time, address, size, stack, handle uint64
}

// call is what events have in common.
type call struct {
	op       ledger.Op
	kind     ledger.Kind
	space    ledger.Space
	pid, tid uint32
	device   int32
	result   int32
	api      uint32 // index into the names of the batch
	halvings uint8
	context  uint64
}

// events are those of a batch.
type events struct {
	list  []event
	names []string // of APIs
	index map[string]uint32
}

func (l *events) add(e *ledger.Event) {
	l.list = append(l.list, event{
		call{e.Op, e.Kind, e.Space, e.PID, e.TID, e.Device, e.Result, l.name(e.API), e.Halvings, e.Context}, e.Time, e.Address, e.Size, e.Stack, e.Handle,
	})
}

func (l *events) name(api string) uint32 {
	for i := range min(len(l.names), 8) { // mostly the same string, which is known by its address
		if l.names[i] == api {
			return uint32(i)
		}
	}
	n, ok := l.index[api]
	if !ok {
		if l.index == nil {
			l.index = map[string]uint32{}
		}
		n = uint32(len(l.names))
		l.names = append(l.names, api)
		l.index[api] = n
	}
	return n
}

func (l *events) clear() {
	clear(l.names)
	clear(l.index)
	l.list, l.names = l.list[:0], l.names[:0]
}

// slots is how many addresses are remembered: allocators hand the same ones out again and again.
const slots = 1 << 12

type slotTable [slots]uint64

func slotOf(address uint64) uint32 {
	return uint32(address * 0x9e3779b97f4a7c15 >> (64 - 12))
}

// recent is a small cache before a map, by the low bits of a hash.
const recent = 64

// eventCoder turns events into columns. Each frame stands for itself.
type eventCoder struct {
	calls  map[call]uint32
	stacks map[uint64]uint32
	slots  slotTable

	lastCalls [recent]struct { // those seen last, to spare the maps
		call  call
		index uint32
		valid bool
	}
	lastStacks [recent]struct {
		id    uint64
		index uint32
		valid bool
	}
}

func newEventCoder() *eventCoder {
	return &eventCoder{calls: map[call]uint32{}, stacks: map[uint64]uint32{}}
}

func (c *eventCoder) reset() {
	clear(c.calls)
	clear(c.stacks)
	clear(c.slots[:])
	for i := range recent {
		c.lastCalls[i].valid, c.lastStacks[i].valid = false, false
	}
}

// encode fills the columns of m, whose slices it uses again.
func (c *eventCoder) encode(m *wire.Inputs, l *events) {
	c.reset()
	truncateColumns(m)
	for _, name := range l.names {
		m.Api = append(m.Api, []byte(name))
	}
	var time, address, handles uint64
	for i := range l.list {
		e := &l.list[i]
		m.Call = append(m.Call, c.call(m, &e.call))
		m.Time = append(m.Time, int64(e.time-time))
		time = e.time
		slot := slotOf(e.address)
		if c.slots[slot] == e.address {
			m.Known = append(m.Known, slot+1)
		} else {
			c.slots[slot] = e.address
			m.Known = append(m.Known, 0)
			m.Address = append(m.Address, int64(e.address-address))
			address = e.address
		}
		m.Size = append(m.Size, e.size)
		m.Stack = append(m.Stack, c.stack(m, e.stack))
		m.Handle = append(m.Handle, e.handle)
		handles |= e.handle
	}
	if handles == 0 {
		m.Handle = m.Handle[:0]
	}
}

func truncateColumns(m *wire.Inputs) {
	m.Api, m.CallOp, m.CallKind, m.CallSpace, m.CallPid, m.CallTid = m.Api[:0], m.CallOp[:0], m.CallKind[:0], m.CallSpace[:0], m.CallPid[:0], m.CallTid[:0]
	m.CallDevice, m.CallResult, m.CallContext, m.CallApi, m.StackId = m.CallDevice[:0], m.CallResult[:0], m.CallContext[:0], m.CallApi[:0], m.StackId[:0]
	m.CallHalvings = m.CallHalvings[:0]
	m.Call, m.Time, m.Known, m.Address, m.Size, m.Stack, m.Handle = m.Call[:0], m.Time[:0], m.Known[:0], m.Address[:0], m.Size[:0], m.Stack[:0], m.Handle[:0]
	m.Input = m.Input[:0]
}

func (c *eventCoder) call(m *wire.Inputs, k *call) uint32 {
	last := &c.lastCalls[(uint32(k.op)+k.tid*7+uint32(k.kind)*31)%recent]
	if last.valid && last.call == *k {
		return last.index
	}
	n, ok := c.calls[*k]
	if !ok {
		n = uint32(len(m.CallOp))
		c.calls[*k] = n
		m.CallOp, m.CallKind, m.CallSpace = append(m.CallOp, uint32(k.op)), append(m.CallKind, uint32(k.kind)), append(m.CallSpace, uint32(k.space))
		m.CallPid, m.CallTid = append(m.CallPid, k.pid), append(m.CallTid, k.tid)
		m.CallDevice, m.CallResult = append(m.CallDevice, k.device), append(m.CallResult, k.result)
		m.CallContext, m.CallApi = append(m.CallContext, k.context), append(m.CallApi, k.api)
		m.CallHalvings = append(m.CallHalvings, uint32(k.halvings))
	}
	last.call, last.index, last.valid = *k, n, true
	return n
}

func (c *eventCoder) stack(m *wire.Inputs, id uint64) uint32 {
	last := &c.lastStacks[id%recent]
	if last.valid && last.id == id {
		return last.index
	}
	n, ok := c.stacks[id]
	if !ok {
		n = uint32(len(m.StackId))
		c.stacks[id] = n
		m.StackId = append(m.StackId, id)
	}
	last.id, last.index, last.valid = id, n, true
	return n
}

// eventDecoder gives the events of a frame, one after the other.
type eventDecoder struct {
	m             *wire.Inputs
	calls         []ledger.Event
	next          int // event
	nextAddress   int
	time, address uint64
	slots         slotTable
}

var errColumns = errors.New("columns of different length, or an index beyond its table")

// begin checks the columns of a message and begins with its first event.
func (d *eventDecoder) begin(m *wire.Inputs) error {
	d.m, d.next, d.nextAddress, d.time, d.address = m, 0, 0, 0, 0
	clear(d.slots[:])
	n := len(m.Call)
	if len(m.Time) != n || len(m.Known) != n || len(m.Size) != n || len(m.Stack) != n || len(m.Handle) != n && len(m.Handle) != 0 {
		return errColumns
	}
	if err := d.readCalls(); err != nil {
		return err
	}
	misses := 0
	for i := range n {
		if uint64(m.Call[i]) >= uint64(len(d.calls)) || uint64(m.Stack[i]) >= uint64(len(m.StackId)) || m.Known[i] > slots {
			return errColumns
		}
		if m.Known[i] == 0 {
			misses++
		}
	}
	if misses != len(m.Address) {
		return errColumns
	}
	return nil
}

func (d *eventDecoder) readCalls() error {
	m := d.m
	n := len(m.CallOp)
	for _, length := range [...]int{
		len(m.CallKind), len(m.CallSpace), len(m.CallPid), len(m.CallTid), len(m.CallDevice), len(m.CallResult), len(m.CallContext), len(m.CallApi),
	} {
		if length != n {
			return errColumns
		}
	}
	if len(m.CallHalvings) != n && len(m.CallHalvings) != 0 {
		return errColumns
	}
	names := make([]string, len(m.Api))
	for i, name := range m.Api {
		names[i] = clean(name)
	}
	d.calls = d.calls[:0]
	for i := range n {
		if uint64(m.CallApi[i]) >= uint64(len(names)) || m.CallOp[i] > 255 || m.CallKind[i] > 255 || m.CallSpace[i] > 255 {
			return errColumns
		}
		d.calls = append(d.calls, ledger.Event{
			Op: ledger.Op(m.CallOp[i]), Kind: ledger.Kind(m.CallKind[i]), Space: ledger.Space(m.CallSpace[i]), PID: m.CallPid[i], TID: m.CallTid[i],
			Device: m.CallDevice[i], Result: m.CallResult[i], Context: m.CallContext[i], API: names[m.CallApi[i]],
		})
		if len(m.CallHalvings) == n {
			d.calls[i].Halvings = uint8(min(m.CallHalvings[i], 255))
		}
	}
	return nil
}

// peek is the time of the next event; there must be one.
func (d *eventDecoder) peek() uint64 { return d.time + uint64(d.m.Time[d.next]) }

// read gives the next event; there must be one.
func (d *eventDecoder) read(e *ledger.Event) {
	m, i := d.m, d.next
	*e = d.calls[m.Call[i]]
	d.time += uint64(m.Time[i])
	e.Time = d.time
	if slot := m.Known[i]; slot != 0 {
		e.Address = d.slots[slot-1]
	} else {
		d.address += uint64(m.Address[d.nextAddress])
		d.nextAddress++
		e.Address = d.address
		d.slots[slotOf(e.Address)] = e.Address
	}
	e.Size, e.Stack = m.Size[i], m.StackId[m.Stack[i]]
	if len(m.Handle) != 0 {
		e.Handle = m.Handle[i]
	}
	d.next++
}
