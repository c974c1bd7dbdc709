// SPDX-License-Identifier: Apache-2.0

package torchfile

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// begin is when the sessions of all files begin, by a clock of their own, in ns.
const begin = uint64(time.Second)

// maxEvents bounds what a file may become. Each item becomes few events, except mappings that are
// unmapped in many parts.
const maxEvents = 16 << 20

// timed is an entry of a device.
type timed struct {
	*entry
	device int
}

// booker tells books what a file has.
type booker struct {
	*parser
	stacks  *stacks
	to      ledger.Books
	pid     uint32
	devices []*device
	traced  bool   // the traces are shown
	first   uint64 // microseconds since 1970 of the begin of the session
	now     uint64 // ns of the session's clock
	events  int
	bare    [2]uint64 // blocks at the dump without a stack, and their bytes
}

// device is the running state of one device.
type device struct {
	*history
	live     map[uint64]uint64 // sizes of blocks by address
	total    ledger.TensorTotals
	physical uint64 // number of the latest physical memory
}

// plan decides whether the traces are shown, and undoes them.
func (b *booker) plan() {
	count := max(len(b.traces), len(b.segments))
	b.traced = b.timedTraces()
	b.devices = b.undone(count)
	if b.traced && slices.ContainsFunc(b.devices, func(d *device) bool { return !d.whole() }) {
		b.traced = false
		b.devices = b.undone(count)
		b.warn("the traces do not lead to the state at the dump, so PyTorch did not record all events: only that state is shown")
	}
}

func (b *booker) undone(count int) (list []*device) {
	for i := range count {
		d := &device{history: b.historyOf(int32(i), b.traced), live: map[uint64]uint64{}}
		d.total = ledger.TensorTotals{PID: b.pid, Device: int32(i), Classes: make([]ledger.ClassTotals, ledger.SizeClasses)}
		list = append(list, d)
	}
	return list
}

// timedTraces reports whether there are traces whose entries have times. It sets the begin of the
// session.
func (b *booker) timedTraces() bool {
	first, n := b.firstTime()
	if n > 0 && first == 0 {
		b.warn("the traces have no times (an older PyTorch wrote it): only the state at the dump is shown")
	}
	b.first = first
	return n > 0 && first > 0
}

func (b *booker) warn(text string) { b.to.Tell(ledger.Warning{Text: text}) }

// tell tells the books everything.
func (b *booker) tell() error {
	b.now = begin
	b.to.Tell(ledger.Begin{Time: begin})
	b.to.Tell(ledger.Process{PID: b.pid, Comm: b.about.comm, Begin: begin})
	b.plan()
	for _, d := range b.devices {
		if d.end.segments.Len() > 0 || len(d.entries) > 0 {
			b.state(d)
		}
	}
	for _, e := range b.merged() {
		b.now = max(b.now, begin+min(e.time-b.first, math.MaxInt64/2000)*1000)
		b.entry(b.devices[e.device], e.entry)
	}
	b.totals()
	b.doubts()
	if b.events > maxEvents && !b.unlimited {
		return errTooLarge
	}
	return nil
}

// merged returns the entries of all traces in the order of their times.
func (b *booker) merged() (list []timed) {
	if !b.traced {
		return nil
	}
	for i, d := range b.devices {
		last := uint64(0)
		for k := range d.entries { // the order within a trace is the allocator's
			e := &d.entries[k]
			e.time = max(e.time, last)
			last = e.time
			list = append(list, timed{e, i})
		}
	}
	slices.SortStableFunc(list, func(x, y timed) int {
		switch {
		case x.time < y.time:
			return -1
		case x.time > y.time:
			return 1
		}
		return 0
	})
	return list
}

// state books what a device has at the begin.
func (b *booker) state(d *device) {
	b.apply(&ledger.Event{Op: ledger.Allocator, Kind: ledger.Tensor, Space: ledger.Blocks, Device: d.device})
	for x := range d.begin.segments.From(0) {
		b.take(d, x.Start, x.End, x.Value)
	}
	for _, address := range d.begin.addresses() {
		b.alloc(d, address, d.begin.blocks[address])
	}
}

func (b *booker) entry(d *device, e *entry) {
	switch e.action {
	case alloc:
		b.alloc(d, e.address, held{size: e.size, frames: e.frames})
	case freeRequested:
		b.free(d, e.address)
	case segmentAlloc, segmentMap:
		b.take(d, e.address, e.address+e.size, taken{frames: e.frames, expandable: e.action == segmentMap})
	case segmentFree:
		b.apply(&ledger.Event{Op: ledger.Free, Kind: ledger.Device, Device: d.device, Address: e.address, API: "cudaFree"})
		b.reserve(d, -int64(e.size))
	case segmentUnmap:
		b.apply(&ledger.Event{Op: ledger.Unmap, Device: d.device, Address: e.address, Size: e.size, API: "cuMemUnmap"})
		b.reserve(d, -int64(e.size))
	case outOfMemory:
		x := ledger.Event{
			Op: ledger.OutOfMemory, Kind: ledger.Tensor, Device: d.device, Result: errorMemory, Size: e.size, Stack: b.stacks.id(e.frames, ofBlock), API: tensorAPI,
			Context: d.total.Allocated, Handle: d.total.Reserved,
		}
		failed := x
		failed.Op, failed.Space, failed.Context, failed.Handle = ledger.AllocFailed, ledger.Blocks, 0, 0
		b.apply(&failed)
		b.apply(&x)
	}
}

const (
	errorMemory = 2 // of CUDA
	tensorAPI   = "c10::cuda::CUDACachingAllocator"
)

func (b *booker) apply(e *ledger.Event) {
	e.PID, e.TID, e.Time = b.pid, b.pid, b.now
	if b.events++; b.events <= maxEvents || b.unlimited {
		b.to.Apply(e)
	}
}

// take books a segment.
func (b *booker) take(d *device, start, end uint64, t taken) {
	of := ofSegment
	if t.expandable {
		of = ofMapping
	}
	stack := b.stacks.id(t.frames, of)
	if t.before {
		stack = b.stacks.mark(markBefore, of)
	}
	if !t.expandable {
		b.apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, Device: d.device, Address: start, Size: end - start, Stack: stack, API: "cudaMalloc"})
	} else {
		d.cut(start, end, func(start, end uint64) {
			d.physical++
			handle := uint64(d.device)<<48 | d.physical
			b.apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.VMM, Space: ledger.Physical, Device: d.device, Address: handle, Size: end - start, Stack: stack, API: "cuMemCreate"})
			b.apply(&ledger.Event{Op: ledger.Map, Device: d.device, Address: start, Size: end - start, Handle: handle, Stack: stack, API: "cuMemMap"})
			b.apply(&ledger.Event{Op: ledger.Free, Kind: ledger.VMM, Space: ledger.Physical, Device: d.device, Address: handle, API: "cuMemRelease"}) // the mapping keeps it
		})
	}
	b.reserve(d, int64(end-start))
}

// reserve books a change of what the allocator has reserved.
func (b *booker) reserve(d *device, by int64) {
	d.total.Reserved += uint64(by)
	b.apply(b.told(d, &ledger.Event{Op: ledger.Totals}))
}

// told adds the totals of the allocator.
func (b *booker) told(d *device, e *ledger.Event) *ledger.Event {
	e.Kind, e.Space, e.Device = ledger.Tensor, ledger.Blocks, d.device
	e.Told, e.Allocated, e.Reserved, e.Live = ledger.ToldAllocated|ledger.ToldLive, d.total.Allocated, d.total.Reserved, d.total.Allocated
	return e
}

func (b *booker) alloc(d *device, address uint64, h held) {
	stack := b.stacks.id(h.frames, ofBlock)
	if h.before {
		stack = b.stacks.mark(markBefore, ofBlock)
	}
	if _, live := d.live[address]; live {
		b.free(d, address)
	}
	d.live[address] = h.size
	class := &d.total.Classes[ledger.SizeClass(h.size)]
	class.Allocs, class.AllocBytes = class.Allocs+1, class.AllocBytes+h.size
	if d.total.Allocated += h.size; d.total.Allocated > d.total.Peak {
		d.total.Peak, d.total.PeakTime = d.total.Allocated, b.now
	}
	b.apply(b.told(d, &ledger.Event{Op: ledger.Alloc, Address: address, Size: h.size, Stack: stack, API: tensorAPI}))
}

func (b *booker) free(d *device, address uint64) {
	size := d.live[address]
	delete(d.live, address)
	class := &d.total.Classes[ledger.SizeClass(size)]
	if size > 0 {
		class.Frees, class.FreeBytes = class.Frees+1, class.FreeBytes+size
	}
	d.total.Allocated -= size
	b.apply(b.told(d, &ledger.Event{Op: ledger.Free, Address: address}))
}

// totals books the exact totals and the list of all blocks at the dump.
func (b *booker) totals() {
	reading, blocks := ledger.TensorReading{Time: b.now}, []ledger.Block(nil)
	for _, d := range b.devices {
		d.total.Reported = b.now
		if d.total.Reserved > 0 || d.total.Peak > 0 {
			reading.Totals = append(reading.Totals, d.total)
		}
		for _, address := range d.end.addresses() {
			h := d.end.blocks[address]
			blocks = append(blocks, ledger.Block{Address: address, Size: h.size, Device: d.device})
			if h.frames == nil || len(h.frames.Items) == 0 {
				b.bare[0], b.bare[1] = b.bare[0]+1, b.bare[1]+h.size
			}
		}
	}
	b.to.Tell(reading)
	b.to.Tell(ledger.BlockList{PID: b.pid, Blocks: blocks})
}

// doubts warns of what the file does not have.
func (b *booker) doubts() {
	if !b.about.exported {
		b.warn("this is a memory snapshot of PyTorch: it has no readings of the driver, so memory outside of PyTorch's allocator is not in it")
	} else {
		b.warn("vramprof exported this file from a session: memory that PyTorch's allocator did not take is shown as tensors; the capture has it apart")
	}
	if b.bare[0] > 0 {
		b.warn(fmt.Sprintf("%s with %s have no stack: torch.cuda.memory._record_memory_history() was not on when they were allocated", format.Count(b.bare[0], "block"), format.Bytes(b.bare[1])))
	}
	if b.traced {
		b.warn("of blocks that were freed before the dump, the requested size rounded up to 512 bytes is shown: peaks may be lower than PyTorch's")
	}
	for _, text := range b.about.warnings {
		b.warn(text)
	}
	if b.bad > 0 {
		b.warn(fmt.Sprintf("%s of the snapshot are malformed and left out", format.Count(uint64(b.bad), "item")))
	}
}
