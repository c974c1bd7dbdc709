// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"math"
	"slices"
	"testing"
	"time"
)

// tensorsAt plays a script and returns Snapshot.Tensors of process 7.
func tensorsAt(t *testing.T, script string) (*Snapshot, Tensors) {
	t.Helper()
	l := play(t, script)
	s := l.Snapshot(100e9, time.Time{})
	if len(s.Tensors) != 1 {
		t.Fatalf("%d allocators", len(s.Tensors))
	}
	checkBooks(t, s)
	return s, s.Tensors[0]
}

const torchBlock = " dev=0 kind=tensor space=blocks api=torch"

func TestEventsOfAnAllocatorTellItsTotals(t *testing.T) {
	for _, c := range []struct {
		name, script                                string
		allocated, reserved, live, older, peak, sum uint64
	}{
		{"before the first reading", `
allocator t=1 dev=0 size=1000 handle=1000
alloc t=2 addr=1000 size=512 stack=1 told=1512/6096` + torchBlock,
			1512, 6096, 512, 1000, 1512, 512},
		{"between readings", `
allocator t=1 dev=0 size=1000 handle=1000
alloc t=2 addr=1000 size=512 stack=1 told=1512/4096` + torchBlock + `
totals t=3 dev=0 reported=2 allocated=1512 reserved=4096 512:1/512-0/0
alloc t=4 addr=2000 size=512 stack=1 told=2024/4096` + torchBlock + `
free t=5 addr=1000 told=1512/4096/512` + torchBlock,
			1512, 4096, 512, 1000, 2024, 512},
		{"when older tensors are freed", `
allocator t=1 dev=0 size=1000 handle=1000
alloc t=2 addr=1000 size=512 stack=1 told=1512/4096` + torchBlock + `
told t=3 told=912/4096/512` + torchBlock,
			912, 4096, 512, 400, 1512, 512},
		{"also of blocks that are not in the sample", `
sampling 0.5
allocator t=1 dev=0 size=0 handle=1000
alloc t=2 addr=1000 size=512 stack=1 told=512/4096` + torchBlock + `
told t=3 told=10512/20480/10512` + torchBlock + `
told t=4 told=5512/20480/5512` + torchBlock,
			5512, 20480, 5512, 0, 10512, 5512},
		{"an event that is older than the reading tells nothing new", `
allocator t=1 dev=0 size=0 handle=0
totals t=9 dev=0 reported=8 allocated=1024 reserved=4096 512:2/1024-0/0
alloc t=7 addr=1000 size=512 stack=1 told=512/2048` + torchBlock,
			1024, 4096, 1024, 0, 1024, 1024},
		{"without totals of its own it reports live bytes", `
alloc t=2 addr=1000 size=512 stack=1 told=512/0` + torchBlock + `
told t=3 told=1536/0/1536` + torchBlock,
			0, 0, 1536, 0, 0, 1536},
		{"a capture whose events have no totals has the last reading", `
allocator t=1 dev=0 size=1000 handle=1000
alloc t=2 addr=1000 size=512 stack=1` + torchBlock + `
totals t=3 dev=0 reported=2 allocated=1512 reserved=4096 512:1/512-0/0
alloc t=4 addr=2000 size=512 stack=1` + torchBlock,
			1512, 4096, 512, 1000, 1512, 512},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, x := tensorsAt(t, c.script)
			var sum uint64
			for _, site := range s.Sites {
				sum += site.LiveBytes
			}
			if x.Allocated != c.allocated || x.Reserved != c.reserved || x.LiveBytes != c.live || x.Older != c.older || x.Peak != c.peak || sum != c.sum {
				t.Errorf("allocated %d, reserved %d, live %d, older %d, peak %d, sites %d; want %d, %d, %d, %d, %d, %d",
					x.Allocated, x.Reserved, x.LiveBytes, x.Older, x.Peak, sum, c.allocated, c.reserved, c.live, c.older, c.peak, c.sum)
			}
		})
	}
}

// TestWhatTheSampleLacksIsSharedOut: the exact total is divided among sites by the changes of the
// sample since the last reading.
func TestWhatTheSampleLacksIsSharedOut(t *testing.T) {
	s, x := tensorsAt(t, `
sampling 0.25
allocator t=1 dev=0 size=0 handle=0
totals t=2 dev=0 reported=2 allocated=8192 reserved=1048576 512:16/8192-0/0
alloc t=3 addr=1000 size=512 stack=1 told=20000/1048576`+torchBlock+`
alloc t=4 addr=2000 size=512 stack=1 told=30000/1048576`+torchBlock+`
alloc t=5 addr=3000 size=512 stack=2 told=40000/1048576`+torchBlock+`
told t=6 told=42000/1048576/42000`+torchBlock)
	bytes := map[uint64]uint64{}
	for _, site := range s.Sites {
		bytes[site.Stack] += site.LiveBytes
	}
	if x.LiveBytes != 42000 || bytes[1] != 28000 || bytes[2] != 14000 {
		t.Errorf("live %d, by stack %v: want 28000 and 14000 of 42000", x.LiveBytes, bytes)
	}
}

func TestFitLiveAddsUp(t *testing.T) {
	l := New(Options{})
	l.Tell(Sampling{0.5, 0.5, 1, 1})
	for _, c := range []struct {
		name  string
		have  []uint64
		total uint64
		want  []uint64 // of the classes that are sampled whole
	}{
		{"more", []uint64{100, 300, 1000, 0}, 2000, []uint64{1000, 0}},
		{"less", []uint64{100, 300, 1000, 0}, 1100, []uint64{1000, 0}},
		{"less than the whole classes have", []uint64{100, 300, 1000, 1000}, 500, []uint64{250, 250}},
		{"nothing", []uint64{100, 300, 1000, 0}, 0, []uint64{0, 0}},
		{"without a class to put it into", []uint64{0, 0, 0, 0}, 77, []uint64{0, 0}},
		{"whole classes alone", []uint64{0, 0, 10, 30}, 80, []uint64{20, 60}},
	} {
		classes := make([]tensorClass, len(c.have))
		for i, n := range c.have {
			classes[i].live = count{min(n, 1), n}
		}
		l.fitLive(classes, c.total)
		var sum uint64
		for _, x := range classes {
			sum += x.live.bytes
			if (x.live.objects == 0) != (x.live.bytes == 0) {
				t.Errorf("%s: %+v", c.name, x.live)
			}
		}
		if got := []uint64{classes[2].live.bytes, classes[3].live.bytes}; sum != c.total || !slices.Equal(got, c.want) {
			t.Errorf("%s: the classes have %d of %d, the whole ones %v, want %v", c.name, sum, c.total, got, c.want)
		}
	}
}

// TestAPeakIsTheHighestThatWasToldOrRead, and its time is the first at which it was reached.
func TestAPeakIsTheHighestThatWasToldOrRead(t *testing.T) {
	l := play(t, `
allocator t=1 dev=0 size=1000 handle=1000
alloc t=2 addr=1000 size=512 stack=1 told=9000/9000`+torchBlock+`
told t=3 told=2000/9000/1000`+torchBlock)
	read := func(reported, allocated, peak, at uint64) Tensors {
		l.Tell(TensorReading{Time: reported, Totals: []TensorTotals{{PID: 7, Reported: reported, Allocated: allocated, Reserved: 9000, Live: 1000, Peak: peak, PeakTime: at}}})
		return l.Snapshot(math.MaxUint64, time.Time{}).Tensors[0]
	}
	if x := read(4e9, 2000, 9000, 2e9); x.Peak != 9000 || x.PeakTime != 2e9 {
		t.Errorf("a peak of %d at %d, want 9000 at 2 s", x.Peak, x.PeakTime)
	}
	if x := read(6e9, 2000, 9500, 5e9); x.Peak != 9500 || x.PeakTime != 5e9 {
		t.Errorf("a peak of %d at %d, want the 9500 at 5 s that no event told", x.Peak, x.PeakTime)
	}
}

// TestPartsAreOfOneMoment: allocations after NVML's reading are in the parts and in their sum, so
// they are not unexplained.
func TestPartsAreOfOneMoment(t *testing.T) {
	l := play(t, `
devices GPU-a
usage t=1 GPU-a=1000
alloc t=2 addr=a000 size=4096 stack=1 dev=0
allocator t=2 dev=0 size=0 handle=1000
segments 1
alloc t=2 addr=a000 size=512 stack=2 told=512/4096`+torchBlock+`
usage t=3 GPU-a=5096
alloc t=4 addr=b000 size=8192 stack=1 dev=0
alloc t=5 addr=b000 size=512 stack=2 told=1024/12288`+torchBlock+`
alloc t=6 addr=c000 size=100 stack=9 dev=0
free t=7 addr=a000 dev=0`)
	s := l.Snapshot(8e9, time.Time{})
	x := s.Parts()[0]
	if x.Usage != 5096 || x.Since != 8192+100-4096 || x.Unexplained != 0 || x.Foreign != 1000 || x.Driver != 100 || x.Tensors+x.Cached != 8192 {
		t.Errorf("%+v", x)
	}
}

// TestAnAllocationIsASegmentByWhatTheAllocatorSays, before its stack is known: otherwise two parts
// would have it.
func TestAnAllocationIsASegmentByWhatTheAllocatorSays(t *testing.T) {
	l := play(t, `
devices GPU-a
usage t=1 GPU-a=1000
allocator t=1 dev=0 size=0 handle=0
alloc t=2 addr=10000 size=4096 stack=1 dev=0
alloc t=2 addr=90000 size=100 stack=9 dev=0
alloc t=3 addr=10000 size=512 stack=2 told=512/4096`+torchBlock+`
alloc t=4 addr=20000 size=8192 stack=3 dev=0
alloc t=5 addr=20000 size=512 stack=2 told=1024/12288`+torchBlock)
	s := l.Snapshot(6e9, time.Time{})
	if x := s.Parts()[0]; x.Driver != 100 || x.Tensors+x.Cached != 12288 || x.Unexplained != 0 {
		t.Errorf("%+v", x)
	}
}

// TestSegmentsAndTotalsAreOfOneMoment: a segment counts as cache from its own event on, until the
// allocator's next report has its tensors.
func TestSegmentsAndTotalsAreOfOneMoment(t *testing.T) {
	_, x := tensorsAt(t, `
devices GPU-a
segments 1
allocator t=1 dev=0 size=0 handle=0
alloc t=2 addr=10000 size=4096 stack=1 dev=0
alloc t=3 addr=10000 size=512 stack=2 told=512/4096`+torchBlock+`
alloc t=4 addr=20000 size=8192 stack=1 dev=0
segments 1`)
	if x.Reserved != 12288 || x.Cached != 12288-512 || x.LiveBytes != 512 {
		t.Errorf("%+v", x)
	}
}

// TestAReadingWithoutLiveTensorsIsAReading: later allocations are younger than the attach.
func TestAReadingWithoutLiveTensorsIsAReading(t *testing.T) {
	l := play(t, `
allocator t=1 dev=0 size=1000 handle=1000
alloc t=2 addr=1000 size=512 stack=1 told=1512/9000`+torchBlock+`
free t=3 addr=1000 told=1000/9000/0`+torchBlock)
	l.Tell(TensorReading{Time: 4e9, Totals: []TensorTotals{{PID: 7, Reported: 3e9, Allocated: 1000, Reserved: 9000, Peak: 1512, PeakTime: 2e9, Classes: make([]ClassTotals, SizeClasses)}}})
	l.Apply(&Event{Op: Alloc, Kind: Tensor, Space: Blocks, PID: 7, Time: 5e9, Address: 0x1000, Size: 2048, Stack: 1, API: "torch", Told: ToldAllocated, Allocated: 3048, Reserved: 9000})
	if x := l.Snapshot(6e9, time.Time{}).Tensors[0]; x.LiveBytes != 2048 || x.Older != 1000 {
		t.Errorf("live %d, older %d, want 2048 and 1000", x.LiveBytes, x.Older)
	}
}

// TestOfTwoAllocationsThatFitNoneIsTakenForASegment: NCCL may allocate as much as PyTorch at the
// same time; their stacks differ.
func TestOfTwoAllocationsThatFitNoneIsTakenForASegment(t *testing.T) {
	l := play(t, `
allocator t=1 dev=0 size=0 handle=0
alloc t=2 addr=10000 size=4096 stack=100 dev=0
alloc t=2 addr=20000 size=4096 stack=200 dev=0
alloc t=3 addr=20000 size=512 stack=2 told=512/4096`+torchBlock)
	l.Tell(Segments{200})
	for _, x := range l.Snapshot(4e9, time.Time{}).Sites {
		if x.Kind == Device && x.Segment != (x.Stack == 200) {
			t.Errorf("stack %d is taken for a segment: %v", x.Stack, x.Segment)
		}
	}
}
