// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/caching"
)

const pid = 7

// session writes a capture of process 7, and counts its time.
type session struct {
	t    testing.TB
	w    *capture.Writer
	path string
	now  uint64
	sums ledger.Event // the allocator's totals
}

func begin(t testing.TB) *session {
	t.Helper()
	s := &session{t: t, path: filepath.Join(t.TempDir(), "job.vram"), now: 1e9}
	f, err := os.Create(s.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if s.w, err = capture.NewWriter(f, capture.Options{Clock: func() uint64 { return s.now }}); err != nil {
		t.Fatal(err)
	}
	s.w.Tell(ledger.Begin{Time: s.now})
	s.w.Tell(ledger.Process{PID: pid})
	return s
}

// torch sets which PyTorch the process has.
func (s *session) torch(version, settings string) {
	s.w.Tell(ledger.PyTorch{PID: pid, Time: s.now, Version: version, Settings: settings, InUse: true})
}

func (s *session) apply(e ledger.Event) {
	s.now++
	e.PID, e.TID, e.Time = pid, 1, s.now
	s.w.Apply(&e)
}

func (s *session) block(e ledger.Event) {
	e.Kind, e.Space, e.API, e.Told = ledger.Tensor, ledger.Blocks, "torch", ledger.ToldAllocated
	e.Allocated, e.Reserved = s.sums.Allocated, s.sums.Reserved
	s.apply(e)
}

func (s *session) first(allocated uint64) {
	s.apply(ledger.Event{Op: ledger.Allocator, Kind: ledger.Tensor, Space: ledger.Blocks, Size: allocated})
}

// segment has the driver give memory.
func (s *session) segment(at, size uint64) {
	s.sums.Reserved += size
	s.apply(ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, Address: at, Size: size, API: "cudaMalloc"})
}

// giveBack gives a segment back.
func (s *session) giveBack(at, size uint64) {
	s.sums.Reserved -= size
	s.apply(ledger.Event{Op: ledger.Free, Kind: ledger.Device, Address: at, API: "cudaFree"})
}

func (s *session) alloc(at, size, requested, stream, pool uint64) {
	s.sums.Allocated += size
	s.block(ledger.Event{Op: ledger.Alloc, Address: at, Size: size, Detail: ledger.DetailKnown, Requested: requested, Stream: stream, Pool: pool, Stack: at})
}

func (s *session) free(at, size uint64, d ledger.Detail) {
	s.sums.Allocated -= size
	s.block(ledger.Event{Op: ledger.Free, Address: at, Detail: d})
}

func (s *session) load() []*Captured {
	s.t.Helper()
	if err := s.w.End(nil); err != nil {
		s.t.Fatal(err)
	}
	r, err := capture.Open(s.path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer r.Close()
	list, err := Load(r)
	if err != nil {
		s.t.Fatal(err)
	}
	return list
}

// only returns the only trace of a capture, and its operations as text: "alloc 0, empty, free 0".
func (s *session) only() (c *Captured, ops string) {
	s.t.Helper()
	list := s.load()
	if len(list) != 1 {
		s.t.Fatalf("%d traces", len(list))
	}
	names := [...]string{"alloc", "free", "request", "complete", "empty", "step", "release", "fail"}
	for _, o := range list[0].Trace.Ops {
		if ops != "" {
			ops += ", "
		}
		if ops += names[o.Kind]; o.Kind != allocsim.EmptyCache {
			ops += fmt.Sprint(" ", o.Block)
		}
	}
	return list[0], ops
}

func (s *session) want(ops string) *Captured {
	s.t.Helper()
	c, got := s.only()
	if got != ops {
		s.t.Errorf("operations\n%s, want\n%s", got, ops)
	}
	if len(c.Conditions) > 0 {
		s.t.Errorf("conditions %+v", c.Conditions)
	}
	if _, err := allocsim.Verify(c.Trace); err != nil {
		s.t.Errorf("replay: %v", err)
	}
	return c
}

func TestSegmentsThatGoBackShowEmptyCache(t *testing.T) {
	s := begin(t)
	s.torch("2.6.0", "")
	s.first(0)
	s.segment(0x100000000, 20*mib)
	s.alloc(0x100000000, 5*mib, 5*mib-8, 0, 0)
	s.free(0x100000000, 5*mib, ledger.DetailKnown)
	s.giveBack(0x100000000, 20*mib)
	s.segment(0x200000000, 2*mib)
	s.alloc(0x200000000, 512, 100, 0, 0)
	c := s.want("alloc 0, free 0, empty, alloc 1")
	if b := c.Trace.Blocks[0]; b.Requested != 5*mib-8 || c.Sites[b.Site] != 0x100000000 {
		t.Errorf("block %+v, sites %v", b, c.Sites)
	}
}

func TestSegmentsThatGoBackAfterTheDriverRefusedAreTheAllocators(t *testing.T) {
	s := begin(t)
	s.torch("2.6.0", "")
	s.first(0)
	s.segment(0x100000000, 20*mib)
	s.alloc(0x100000000, 5*mib, 5*mib, 0, 0)
	s.free(0x100000000, 5*mib, ledger.DetailKnown)
	s.apply(ledger.Event{Op: ledger.AllocFailed, Kind: ledger.Device, Size: 30 * mib, Result: 2, API: "cudaMalloc"})
	s.giveBack(0x100000000, 20*mib)
	s.segment(0x200000000, 30*mib)
	s.alloc(0x200000000, 30*mib, 30*mib, 0, 0)
	if _, ops := s.only(); ops != "alloc 0, free 0, alloc 1" {
		t.Error(ops)
	}
}

func TestAPoolWhoseSegmentsGoBackWasReleased(t *testing.T) {
	s := begin(t)
	s.torch("2.6.0", "")
	s.first(0)
	s.segment(0x100000000, 2*mib)
	s.alloc(0x100000000, 512, 512, 0x50, 0xabc0)
	s.free(0x100000000, 512, ledger.DetailKnown)
	s.giveBack(0x100000000, 2*mib)
	s.segment(0x200000000, 2*mib)
	s.alloc(0x200000000, 512, 512, 0x50, 0xabc0) // another pool at the same address
	c := s.want("alloc 0, free 0, release 1, empty, alloc 1")
	if a, b := c.Trace.Blocks[0].Pool, c.Trace.Blocks[1].Pool; a == 0 || b == 0 || a == b {
		t.Errorf("pools %d and %d", a, b)
	}
}

func TestWaitsForStreamsAndFailures(t *testing.T) {
	s := begin(t)
	s.torch("2.6.0", "")
	s.first(0)
	s.segment(0x100000000, 20*mib)
	s.alloc(0x100000000, 5*mib, 5*mib, 0x60, 0)
	s.free(0x100000000, 5*mib, ledger.DetailKnown|ledger.DetailWaits)
	s.block(ledger.Event{Op: ledger.Completed, Address: 0x100000000, Detail: ledger.DetailKnown})
	s.alloc(0x100000000, 5*mib, 5*mib, 0x60, 0)
	s.block(ledger.Event{Op: ledger.Totals, Detail: ledger.DetailFailed, Requested: 1 << 42})
	c, ops := s.only()
	if ops != "alloc 0, request 0, complete 0, alloc 1, fail 2" {
		t.Error(ops)
	}
	if b := c.Trace.Blocks[2]; b.Requested != 1<<42 || b.Stream != c.Trace.Blocks[1].Stream {
		t.Errorf("%+v", b)
	}
}

func TestAReadingBeginsALateTrace(t *testing.T) {
	s := begin(t)
	s.torch("2.6.0", "")
	reading := ledger.AllocatorReading{PID: pid, Time: s.now, Reading: &caching.Reading{
		Devices:  []caching.Device{{Exact: true}},
		Arenas:   []caching.Arena{{}},
		Segments: []caching.Segment{{Address: 0x100000000, Size: 20 * mib}},
		Blocks:   []caching.Block{{Address: 0x100000000, Size: 4 * mib, Requested: 4*mib - 8, State: caching.Active, Older: true}, {Address: 0x100000000 + 4*mib, Size: 16 * mib}},
	}}
	s.w.Tell(reading)
	s.sums.Allocated, s.sums.Reserved = 4*mib, 20*mib
	s.first(4 * mib)
	s.alloc(0x100000000+4*mib, 2*mib, 2*mib, 0, 0)
	s.sums.Allocated -= 4 * mib
	s.block(ledger.Event{Op: ledger.Totals, Address: 0x100000000, Detail: ledger.DetailOlder | ledger.DetailKnown})
	c := s.want("alloc 1, free 0")
	if !c.Late || len(c.Trace.Start) != 1 || c.Trace.Blocks[0].Requested != 4*mib-8 {
		t.Errorf("%+v", c.Trace)
	}
}

func TestConditionsSayWhatATraceLacks(t *testing.T) {
	fill := func(s *session) {
		s.first(0)
		s.segment(0x100000000, 2*mib)
		s.alloc(0x100000000, 512, 512, 0, 0)
	}
	for code, of := range map[Code]func(s *session){
		NotFromStart: func(s *session) { s.first(5 * mib); s.alloc(0x100000000, 512, 512, 0, 0) },
		Sampled: func(s *session) {
			fill(s)
			s.w.Tell(ledger.TensorReading{Time: s.now, Totals: []ledger.TensorTotals{{PID: pid, Classes: []ledger.ClassTotals{{Allocs: 3}}}}})
		},
		NoSizes:       func(s *session) { fill(s); s.block(ledger.Event{Op: ledger.Alloc, Address: 0x100000200, Size: 512}) },
		NoEnds:        func(s *session) { fill(s); s.free(0x100000000, 512, 0) },
		UnknownBlocks: func(s *session) { fill(s); s.free(0x100000800, 512, ledger.DetailKnown) },
		Lost: func(s *session) {
			fill(s)
			s.w.Tell(ledger.Stats{Lost: 4, LostBy: map[uint32]uint64{pid: 4}})
		},
		Untraced:        func(s *session) { fill(s); s.w.Tell(ledger.Untraced{From: s.now, To: s.now + 1}) },
		ChangedSettings: func(s *session) { fill(s); s.torch("2.6.0", "expandable_segments:True") },
	} {
		s := begin(t)
		s.torch("2.6.0", "")
		of(s)
		c, _ := s.only()
		if len(c.Conditions) != 1 || c.Conditions[0].Code != code {
			t.Errorf("%d: %+v", code, c.Conditions)
		} else if text := c.Conditions[0].say(); code == Sampled && text != "tensors are sampled: only 1 of 3 allocations were recorded" {
			t.Error(text)
		}
	}
	for code, torch := range map[Code][2]string{
		OtherSettings: {"2.6.0", "backend:cudaMallocAsync"}, OtherVersion: {"2.11.0", ""}, UnknownVersion: {"", ""},
	} {
		s := begin(t)
		s.torch(torch[0], torch[1])
		fill(s)
		if c, _ := s.only(); len(c.Conditions) != 1 || c.Conditions[0].Code != code {
			t.Errorf("%q: %+v", torch, c.Conditions)
		}
	}
	s := begin(t)
	fill(s)
	if c, _ := s.only(); !slices.ContainsFunc(c.Conditions, func(c Condition) bool { return c.Code == UnknownSettings }) {
		t.Errorf("%+v", c.Conditions)
	}
}

func TestWhatIsNotTracedOfOneProcessSparesOthers(t *testing.T) {
	for paused, want := range map[uint32]int{pid: 1, pid + 1: 0, 0: 1} {
		s := begin(t)
		s.torch("2.6.0", "")
		s.first(0)
		s.segment(0x100000000, 2*mib)
		s.alloc(0x100000000, 512, 512, 0, 0)
		s.w.Tell(ledger.Untraced{PID: paused, From: s.now, To: s.now + 1})
		if c, _ := s.only(); len(c.Conditions) != want {
			t.Errorf("process %d was not traced: %+v", paused, c.Conditions)
		}
	}
}

func TestAPidThatIsUsedAgainIsAnotherTrace(t *testing.T) {
	s := begin(t)
	for range 2 {
		s.torch("2.6.0", "")
		s.sums = ledger.Event{}
		s.first(0)
		s.segment(0x100000000, 2*mib)
		s.alloc(0x100000000, 512, 512, 0, 0)
		s.apply(ledger.Event{Op: ledger.Exit})
	}
	list := s.load()
	if len(list) != 2 || len(list[0].Trace.Ops) != 1 || len(list[1].Trace.Ops) != 1 || list[0].Started >= list[1].Started {
		t.Errorf("%d traces", len(list))
	}
}

// TestManyRangesOfMemoryTakeNoTimeWithoutEnd: of a process that gets and gives back memory before
// all that it has.
func TestManyRangesOfMemoryTakeNoTimeWithoutEnd(t *testing.T) {
	var r ranges
	for i := range uint64(1 << 12) {
		r.add(1<<40+i<<21, 1<<21)
	}
	r.moved = maxMoved - 1<<20
	for range 1 << 9 {
		r.add(1<<30, 1<<21)
		r.remove(1<<30, 1)
	}
	if r.moved < maxMoved || r.moved > maxMoved+1<<13 || len(r.list) != 1<<12 {
		t.Errorf("%d elements moved, %d ranges", r.moved, len(r.list))
	}
}

// FuzzLoad: whatever the events of a capture are, nothing panics or runs without end: neither what
// makes traces of them nor a replay.
func FuzzLoad(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x01\x10\x20\x00\x02\x10\x03\x01\x03\x10\x07\x00\x05\x10\x00\x00\x02\x10\x01\x01"))
	f.Add([]byte("\x07\x10\x08\x01\x02\x10\x03\x11\x04\x10\x03\x00\x06\x10\x08\x00\x08\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		in := &books{processes: map[uint32]*process{}}
		in.Tell(ledger.PyTorch{PID: pid, Version: "2.6.0"})
		for time := uint64(1); len(b) >= 4; b = b[4:] {
			time++
			feed(in, time, b[0], uint64(b[1])<<20|uint64(b[3])<<9, uint64(b[2]), b[3])
		}
		for pid := range in.processes {
			in.end(pid)
		}
		for _, p := range in.ended {
			for _, x := range p.traces {
				if c := x.finish(&p.about); c != nil {
					_, _ = allocsim.Verify(c.Trace)
				}
			}
		}
	})
}

// feed gives books an event of some kind.
func feed(in *books, time uint64, kind byte, at, n uint64, more byte) {
	e := ledger.Event{PID: pid, TID: 1, Time: time, Kind: ledger.Tensor, Space: ledger.Blocks, Address: at, Size: n << 17, Detail: ledger.Detail(more & 15), Requested: n << 16, Pool: uint64(more >> 6), Stream: uint64(more >> 4 & 3)}
	if kind&16 != 0 {
		e.Told, e.Reserved = ledger.ToldAllocated, n<<21
	}
	switch kind % 10 {
	case 0:
		e.Op, e.Size = ledger.Allocator, n&1
	case 1:
		e.Op, e.Kind, e.Space = ledger.Alloc, ledger.Device, ledger.Addresses
	case 2:
		e.Op = ledger.Alloc
	case 3:
		e.Op = ledger.Free
	case 4:
		e.Op = ledger.Completed
	case 5:
		e.Op, e.Space = ledger.Free, ledger.Addresses
		e.Kind = ledger.Device
	case 6:
		e.Op = ledger.Totals
	case 7:
		r := &caching.Reading{Devices: []caching.Device{{Exact: true}}, Arenas: []caching.Arena{{Small: more&1 != 0, Pool: caching.PoolID{uint64(more >> 7)}}}}
		for i := range n & 7 {
			r.Segments = append(r.Segments, caching.Segment{Address: at + i<<21, Size: n << 17, Base: at * uint64(more&2)})
			r.Blocks = append(r.Blocks, caching.Block{Address: at + i<<21, Size: n << 17, State: caching.State(more >> 2 & 3)})
		}
		in.Tell(ledger.AllocatorReading{PID: pid, Time: time, Reading: r})
		return
	case 8:
		e.Op, e.Result, e.Kind, e.Device = ledger.AllocFailed, 2, ledger.Device, ledger.UnknownDevice
	case 9:
		e.Op, e.Kind, e.Space = ledger.Unmap, ledger.VMM, ledger.Addresses
		if more&1 != 0 {
			e.Op = ledger.Map
		}
	}
	in.Apply(&e)
}
