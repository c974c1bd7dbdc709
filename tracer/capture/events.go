// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"encoding/binary"
	"errors"

	"github.com/vramprof/vramprof/tracer/capture/internal/wire"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// call is what repeated events have in common.
type call struct {
	op       ledger.Op
	kind     ledger.Kind
	space    ledger.Space
	pid, tid uint32
	device   int32
	result   int32
	api      uint32 // index into the frame's API names
	halvings uint8
	told     ledger.Told
	context  uint64
	detail   ledger.Detail
	stream   uint64
	pool     uint64
}

// allocator identifies the process and device whose totals an event carries.
type allocator struct {
	pid    uint32
	device int32
}

// totals are an allocator's totals in its latest event.
type totals struct{ allocated, reserved, live uint64 }

// after updates t to the totals of an event. It returns the differences to the previous totals, for
// allocated to the expected value.
func (t *totals) after(e *ledger.Event) (d [3]int64) {
	change := e.Allocated - t.allocated
	d[0], d[1] = int64(e.Allocated-t.expected(e)), int64(e.Reserved-t.reserved)
	live := t.live + change
	if e.Told&ledger.ToldLive != 0 {
		d[2] = int64(e.Live - live)
		live = e.Live
	}
	*t = totals{e.Allocated, e.Reserved, live}
	return d
}

// expected returns the bytes allocated after an event if no other block was allocated or freed.
func (t *totals) expected(e *ledger.Event) uint64 {
	if e.Op == ledger.Alloc {
		return t.allocated + e.Size
	}
	return t.allocated
}

// into sets the totals of an event from their differences.
func (t *totals) into(e *ledger.Event, allocated, reserved, live uint64) {
	e.Allocated, e.Reserved = t.expected(e)+allocated, t.reserved+reserved
	if e.Told&ledger.ToldLive != 0 {
		e.Live = t.live + (e.Allocated - t.allocated) + live
	}
	t.after(e)
}

// slots is how many addresses are remembered: allocators reuse addresses often.
const slots = 1 << 12

type slotTable [slots]uint64

func slotOf(address uint64) uint32 {
	return uint32(address * 0x9e3779b97f4a7c15 >> (64 - 12))
}

// recent is the size of a small cache in front of a map.
const recent = 64

// eventCoder encodes events as the columns of a frame. Each frame can be decoded alone.
type eventCoder struct {
	calls         map[call]uint32
	stacks        map[uint64]uint32
	apis          map[string]uint32
	names         []string // by index
	slots         slotTable
	time, address uint64
	totals        map[allocator]*totals
	totalsOf      []*totals // by call; nil: no totals

	lastCalls [recent]struct { // the latest calls, to avoid map lookups
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
	return &eventCoder{calls: map[call]uint32{}, stacks: map[uint64]uint32{}, apis: map[string]uint32{}, totals: map[allocator]*totals{}}
}

// reset starts the next frame.
func (c *eventCoder) reset() {
	clear(c.calls)
	clear(c.stacks)
	clear(c.apis)
	clear(c.names)
	clear(c.slots[:])
	clear(c.totals)
	clear(c.totalsOf)
	c.names, c.totalsOf, c.time, c.address = c.names[:0], c.totalsOf[:0], 0, 0
	for i := range recent {
		c.lastCalls[i].valid, c.lastStacks[i].valid = false, false
	}
}

func unsigned(column []byte, v uint64) []byte {
	if v < 0x80 {
		return append(column, byte(v))
	}
	return binary.AppendUvarint(column, v)
}

func signed(column []byte, v int64) []byte { return unsigned(column, uint64(v)<<1^uint64(v>>63)) }

// add appends an event to the columns of m.
func (c *eventCoder) add(m *wire.Inputs, e *ledger.Event) {
	call := c.call(m, e)
	m.Call = unsigned(m.Call, uint64(call))
	m.Time = signed(m.Time, int64(e.Time-c.time))
	c.time = e.Time
	slot := slotOf(e.Address)
	if c.slots[slot] == e.Address {
		m.Known = unsigned(m.Known, uint64(slot)+1)
	} else {
		c.slots[slot] = e.Address
		m.Known = append(m.Known, 0)
		m.Address = signed(m.Address, int64(e.Address-c.address))
		c.address = e.Address
	}
	m.Size = unsigned(m.Size, e.Size)
	m.Stack = unsigned(m.Stack, uint64(c.stack(m, e.Stack)))
	if e.Handle != 0 && len(m.Handle) == 0 { // the first one
		m.Handle = append(m.Handle, make([]byte, m.Events)...)
	}
	if len(m.Handle) != 0 || e.Handle != 0 {
		m.Handle = unsigned(m.Handle, e.Handle)
	}
	if last := c.totalsOf[call]; last != nil {
		d := last.after(e)
		m.Totals = signed(signed(m.Totals, d[0]), d[1])
		if e.Told&ledger.ToldLive != 0 {
			m.Totals = signed(m.Totals, d[2])
		}
	}
	if e.Detail != 0 {
		m.Requested = signed(m.Requested, int64(e.Size-e.Requested))
	}
	m.Events++
}

// totalsFor returns the totals in the latest event of e's allocator.
func (c *eventCoder) totalsFor(e *ledger.Event) *totals {
	key := allocator{e.PID, e.Device}
	t := c.totals[key]
	if t == nil {
		t = &totals{}
		c.totals[key] = t
	}
	return t
}

// truncate empties a message and keeps its slices.
func truncate(m *wire.Inputs) {
	clear(m.Api)
	clear(m.Input)
	m.Api, m.CallOp, m.CallKind, m.CallSpace, m.CallPid, m.CallTid = m.Api[:0], m.CallOp[:0], m.CallKind[:0], m.CallSpace[:0], m.CallPid[:0], m.CallTid[:0]
	m.CallDevice, m.CallResult, m.CallContext, m.CallApi, m.StackId = m.CallDevice[:0], m.CallResult[:0], m.CallContext[:0], m.CallApi[:0], m.StackId[:0]
	m.CallHalvings, m.CallTold, m.Totals = m.CallHalvings[:0], m.CallTold[:0], m.Totals[:0]
	m.CallDetail, m.CallStream, m.CallPool, m.Requested = m.CallDetail[:0], m.CallStream[:0], m.CallPool[:0], m.Requested[:0]
	m.Call, m.Time, m.Known, m.Address, m.Size, m.Stack, m.Handle = m.Call[:0], m.Time[:0], m.Known[:0], m.Address[:0], m.Size[:0], m.Stack[:0], m.Handle[:0]
	m.Input, m.Events = m.Input[:0], 0
}

func (c *eventCoder) call(m *wire.Inputs, e *ledger.Event) uint32 {
	k := call{e.Op, e.Kind, e.Space, e.PID, e.TID, e.Device, e.Result, c.name(m, e.API), e.Halvings, e.Told, e.Context, e.Detail, e.Stream, e.Pool}
	last := &c.lastCalls[(uint32(e.Op)+e.TID*7+uint32(e.Kind)*31)%recent]
	if last.valid && last.call == k {
		return last.index
	}
	n, ok := c.calls[k]
	if !ok {
		n = uint32(len(m.CallOp))
		c.calls[k] = n
		m.CallOp, m.CallKind, m.CallSpace = append(m.CallOp, uint32(k.op)), append(m.CallKind, uint32(k.kind)), append(m.CallSpace, uint32(k.space))
		m.CallPid, m.CallTid = append(m.CallPid, k.pid), append(m.CallTid, k.tid)
		m.CallDevice, m.CallResult = append(m.CallDevice, k.device), append(m.CallResult, k.result)
		m.CallContext, m.CallApi = append(m.CallContext, k.context), append(m.CallApi, k.api)
		m.CallHalvings, m.CallTold = append(m.CallHalvings, uint32(k.halvings)), append(m.CallTold, uint32(k.told))
		addDetails(m, &k)
		var last *totals
		if k.told != 0 {
			last = c.totalsFor(e)
		}
		c.totalsOf = append(c.totalsOf, last)
	}
	last.call, last.index, last.valid = k, n, true
	return n
}

func (c *eventCoder) name(m *wire.Inputs, api string) uint32 {
	for i := range min(len(c.names), 8) { // mostly the same string, which has the same address
		if c.names[i] == api {
			return uint32(i)
		}
	}
	n, ok := c.apis[api]
	if !ok {
		n = uint32(len(c.names))
		c.names, c.apis[api] = append(c.names, api), n
		m.Api = append(m.Api, []byte(api))
	}
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

// eventDecoder decodes the events of a frame in order.
type eventDecoder struct {
	m             *wire.Inputs
	calls         []ledger.Event
	left          uint32 // events
	columns       [9]column
	time, address uint64
	slots         slotTable
	totals        map[allocator]*totals
}

// column is the rest of a column. bad means that it was too short or malformed.
type column struct {
	b   []byte
	bad bool
}

func (c *column) unsigned() uint64 {
	if len(c.b) > 0 && c.b[0] < 0x80 {
		v := uint64(c.b[0])
		c.b = c.b[1:]
		return v
	}
	v, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.bad, c.b = true, nil
		return 0
	}
	c.b = c.b[n:]
	return v
}

func (c *column) signed() uint64 {
	v := c.unsigned()
	return v>>1 ^ -(v & 1)
}

const (
	callColumn = iota
	timeColumn
	knownColumn
	addressColumn
	sizeColumn
	stackColumn
	handleColumn
	totalsColumn
	requestedColumn
)

var errColumns = errors.New("columns of different length, or an index beyond its table")

// begin checks the tables of a message and prepares to read its first event.
func (d *eventDecoder) begin(m *wire.Inputs) error {
	d.m, d.left, d.time, d.address = m, m.GetEvents(), 0, 0
	for i, b := range [...][]byte{m.Call, m.Time, m.Known, m.Address, m.Size, m.Stack, m.Handle, m.Totals, m.Requested} {
		d.columns[i] = column{b: b}
	}
	clear(d.slots[:])
	d.totals = map[allocator]*totals{}
	return d.readCalls()
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
	if !hasDetails(m, n) {
		return errColumns
	}
	if len(m.CallHalvings) != n && len(m.CallHalvings) != 0 || len(m.CallTold) != n && len(m.CallTold) != 0 {
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
		if len(m.CallTold) == n {
			d.calls[i].Told = ledger.Told(m.CallTold[i] & uint32(ledger.ToldAllocated|ledger.ToldLive))
		}
		setDetails(m, i, &d.calls[i])
	}
	return nil
}

// read decodes the next event. There must be one left.
func (d *eventDecoder) read(e *ledger.Event) error {
	d.left--
	c := &d.columns
	call, stack, known := c[callColumn].unsigned(), c[stackColumn].unsigned(), c[knownColumn].unsigned()
	if call >= uint64(len(d.calls)) || stack >= uint64(len(d.m.StackId)) || known > slots {
		return errColumns
	}
	*e = d.calls[call]
	e.Stack = d.m.StackId[stack]
	d.time += c[timeColumn].signed()
	e.Time = d.time
	if known != 0 {
		e.Address = d.slots[known-1]
	} else {
		d.address += c[addressColumn].signed()
		e.Address = d.address
		d.slots[slotOf(e.Address)] = e.Address
	}
	e.Size = c[sizeColumn].unsigned()
	if len(d.m.Handle) != 0 {
		e.Handle = c[handleColumn].unsigned()
	}
	if e.Told != 0 {
		d.readTotals(e)
	}
	if e.Detail != 0 {
		e.Requested = e.Size - c[requestedColumn].signed()
	}
	if c[requestedColumn].bad || c[callColumn].bad || c[timeColumn].bad || c[knownColumn].bad || c[addressColumn].bad || c[sizeColumn].bad || c[stackColumn].bad || c[handleColumn].bad || c[totalsColumn].bad {
		return errColumns
	}
	return nil
}

func (d *eventDecoder) readTotals(e *ledger.Event) {
	key := allocator{e.PID, e.Device}
	t := d.totals[key]
	if t == nil {
		t = &totals{}
		d.totals[key] = t
	}
	column := &d.columns[totalsColumn]
	allocated, reserved := column.signed(), column.signed()
	var live uint64
	if e.Told&ledger.ToldLive != 0 {
		live = column.signed()
	}
	t.into(e, allocated, reserved, live)
}
