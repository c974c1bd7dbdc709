// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"
)

// fakeJob is a process with an allocator on each of two GPUs, and memory of another library.
type fakeJob struct {
	l          *Ledger
	rng        *rand.Rand
	allocators []*fakeAllocator
	now        uint64
	library    [2]map[uint64]uint64 // by device: size by address
	context    [2]uint64
}

func newFakeJob(seed uint64, p float64) *fakeJob {
	j := &fakeJob{l: New(Options{}), rng: rand.New(rand.NewPCG(seed, 8)), now: 1e9}
	j.l.Tell(Sampling(slices.Repeat([]float64{p}, SizeClasses)))
	j.l.Tell(Process{PID: 7, Begin: 1, Devices: []string{"GPU-b", "GPU-a"}})
	for d := range int32(2) {
		f := newFakeAllocator(j.rng, d)
		f.report = j.apply
		f.now = func() uint64 { j.now += 1e6; return j.now }
		f.sampled = func(int) bool { return p == 1 || j.rng.Float64() < p }
		if seed%2 == 1 && p < 1 {
			f.halvings = func() uint8 { return uint8(j.rng.IntN(4)) }
		}
		for range j.rng.IntN(300) {
			f.step()
		}
		j.allocators = append(j.allocators, f)
		j.library[d] = map[uint64]uint64{}
		j.context[d] = 300 + uint64(d)
	}
	j.read()
	for _, f := range j.allocators {
		f.attached = true
	}
	return j
}

func (j *fakeJob) apply(e Event) {
	j.now += 1e6
	e.PID, e.TID, e.Time = 7, 7, j.now
	j.l.Apply(&e)
}

func (j *fakeJob) step() {
	d := j.rng.IntN(2)
	if j.rng.Uint64N(50) != 0 {
		j.allocators[d].step()
		return
	}
	for a := range j.library[d] {
		if j.rng.Uint64N(3) == 0 {
			delete(j.library[d], a)
			j.apply(Event{Op: Free, Device: int32(d), Address: a})
		}
	}
	a := uint64(1<<40 + d<<36 + j.rng.IntN(1000)<<16)
	if j.library[d][a] == 0 {
		j.library[d][a] = 1 + j.rng.Uint64N(5000)
		j.apply(Event{Op: Alloc, Kind: Device, Device: int32(d), Address: a, Size: j.library[d][a], Stack: 200, API: "cudaMalloc"})
	}
}

// read feeds the ledger the readings before a snapshot. NVML is right to the byte.
func (j *fakeJob) read() {
	var blocks []Block
	var usage []Usage
	var totals []TensorTotals
	for d, f := range j.allocators {
		bytes := j.context[d] + f.reserved
		for _, size := range j.library[d] {
			bytes += size
		}
		usage = append(usage, Usage{PID: 7, UUID: []string{"GPU-b", "GPU-a"}[d], Bytes: bytes})
		if f.reported {
			totals = append(totals, f.totals())
			blocks = append(blocks, f.liveBlocks()...)
		}
	}
	j.l.Tell(TensorReading{Time: j.now, Totals: totals})
	j.l.MarkSegments(func(stack uint64) bool { return stack >= 100 && stack < 200 })
	j.l.Tell(UsageReading{Time: j.now, Usages: usage})
	j.l.Tell(BlockList{PID: 7, Blocks: blocks})
}

func (j *fakeJob) check(t *testing.T, everything bool) {
	t.Helper()
	s := j.l.Snapshot(j.now, time.Time{})
	checkBooks(t, s)
	for _, got := range s.Tensors {
		f := j.allocators[got.Device]
		want := f.want(0, j.context[got.Device])
		want.Peak, want.PeakTime, want.Error = got.Peak, got.PeakTime, got.Error
		if !reflect.DeepEqual(got, want) || everything && got.Error != 0 {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
		j.checkSites(t, s, f, everything)
		part := s.Parts()[s.BalanceOf(0, got.Device)]
		var library uint64
		for _, size := range j.library[got.Device] {
			library += size
		}
		if part.Unexplained != 0 || part.Driver != library || part.Tensors != want.LiveBytes {
			t.Errorf("part %+v, want %d of the library and nothing unexplained", part, library)
		}
	}
	if len(s.Warnings) != 0 {
		t.Errorf("warnings %q", s.Warnings)
	}
}

// checkSites: segments have the blocks in them, and without sampling each stack has its own blocks.
func (j *fakeJob) checkSites(t *testing.T, s *Snapshot, f *fakeAllocator, everything bool) {
	t.Helper()
	younger := func(b *fakeBlock) bool { return !b.older }
	inside, tensors := map[uint64]uint64{}, map[uint64]uint64{}
	for _, x := range f.segments {
		if !x.older {
			inside[x.stack] += f.inside(x, younger)
		}
	}
	for _, b := range f.blocks {
		if !b.older {
			tensors[b.stack] += b.size
		}
	}
	gotInside, gotTensors := map[uint64]uint64{}, map[uint64]uint64{}
	for _, x := range s.Sites {
		switch {
		case x.Device != f.device || x.LiveBytes == 0:
		case x.Kind == Tensor:
			gotTensors[x.Stack] += x.LiveBytes
		case x.Segment != (x.Stack != 200):
			t.Errorf("site %+v: is it a segment?", x)
		case x.Segment:
			gotInside[x.Stack] += x.Tensors
		}
	}
	for stack, n := range inside {
		if gotInside[stack] != n {
			t.Errorf("segments of stack %d have %d bytes of tensors, want %d", stack, gotInside[stack], n)
		}
	}
	if everything && len(tensors)+len(gotTensors) > 0 && !reflect.DeepEqual(tensors, gotTensors) {
		t.Errorf("tensors by stack %v, want %v", gotTensors, tensors)
	}
}

func TestEveryByteHasOnePart(t *testing.T) {
	for seed := range uint64(30) {
		p := []float64{1, 0.5, 0.1}[seed%3]
		j := newFakeJob(seed, p)
		for range 25 {
			for range 60 {
				j.step()
			}
			j.read()
			j.check(t, p == 1)
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
		checkLedger(t, j.l)
	}
}

func TestSharesAddUpAndNoneIsOffByOne(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 20000 {
		weights := make([]uint64, rng.IntN(6))
		var sum uint64
		for i := range weights {
			weights[i] = rng.Uint64N(1 + maxTensors/8>>rng.Uint64N(60))
			sum += weights[i]
		}
		total := rng.Uint64N(1 + maxTensors>>rng.Uint64N(60))
		shares, ok := apportion(total, weights)
		if !ok {
			if sum != 0 || total == 0 {
				t.Fatalf("%d by %v: refused", total, weights)
			}
			continue
		}
		left := total
		for i, x := range shares {
			left -= x
			if want := float64(total) * float64(weights[i]) / float64(sum); math.Abs(float64(x)-want) > 1+want/1e12 {
				t.Fatalf("%d by %v: %v, share %d should be %v", total, weights, shares, i, want)
			}
			if total == sum && x != weights[i] {
				t.Fatalf("%d by %v: %v", total, weights, shares)
			}
		}
		if sum != 0 && left != 0 {
			t.Fatalf("%d by %v: %v does not add up", total, weights, shares)
		}
	}
}

// The error is compared with the differences between many samples of the same blocks.
func TestErrorIsHowFarSamplesAreApart(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	const mean = 8192 // a sample per so many bytes
	p := make([]float64, SizeClasses)
	for i := range p {
		p[i] = min(1, 512*math.Pow(2, float64(i)/4)/mean)
	}
	var blocks []fakeBlock
	var classes [SizeClasses]ClassTotals
	truth := map[uint64]float64{}
	for range 3000 {
		b := fakeBlock{size: 512 * (1 + rng.Uint64N(8)), stack: 1 + rng.Uint64N(3)}
		if rng.Uint64N(2) == 0 {
			b.stack = 1
		}
		if b.stack == 1 && rng.Uint64N(20) == 0 {
			b.size = 20000
		}
		blocks = append(blocks, b)
		truth[b.stack] += float64(b.size)
		c := &classes[SizeClass(b.size)]
		c.Allocs++
		c.AllocBytes += b.size
	}
	const samples = 400
	var squares, stated float64
	for range samples {
		l := New(Options{})
		l.Tell(Sampling(p))
		for i, b := range blocks {
			if rng.Float64() < p[SizeClass(b.size)] {
				l.Apply(&Event{Op: Alloc, Kind: Tensor, Space: Blocks, PID: 7, Address: 1 + uint64(i), Size: b.size, Stack: b.stack, API: "torch"})
			}
		}
		l.Tell(TensorReading{Time: 1, Totals: []TensorTotals{{PID: 7, Allocated: 1 << 40, Reserved: 1 << 40, Classes: classes[:]}}})
		s := l.Snapshot(1, time.Time{})
		if s.Sites[0].Stack != 1 {
			t.Fatalf("first site %+v", s.Sites[0])
		}
		d := float64(s.Sites[0].LiveBytes) - truth[1]
		squares += d * d
		stated += float64(s.Tensors[0].Error) * float64(s.Tensors[0].Error)
	}
	got, want := math.Sqrt(stated/samples), math.Sqrt(squares/samples)
	t.Logf("stated error %.0f of %.0f bytes, true one %.0f", got, truth[1], want)
	if got < 0.85*want || got > 1.15*want {
		t.Errorf("stated error %.0f, but samples are %.0f apart", got, want)
	}
}

func TestHistoryOfTensorsIsWeightedAsTheyAreNow(t *testing.T) {
	l := New(Options{})
	l.Tell(Sampling{1, 0.25})
	tensor := func(op Op, at, address uint64) {
		l.Apply(&Event{Op: op, Kind: Tensor, Space: Blocks, PID: 7, Time: at * 1e9, Address: address, Size: 512, Stack: 1, API: "torch"})
	}
	for i := range uint64(8) {
		tensor(Alloc, 1+i, i+1)
	}
	totals := TensorTotals{PID: 7, Reserved: 1, Allocated: 1 << 20, Classes: []ClassTotals{{}, {24, 24 * 512, 0, 0}}}
	l.Tell(TensorReading{Time: 8e9, Totals: []TensorTotals{totals}})
	x := l.Snapshot(16e9, time.Time{}).Sites[0]
	if x.LiveBytes != 24*512 || x.History[7] != 3*4*512 || x.History[HistoryLen-1] != x.LiveBytes || x.Growth != 0 {
		t.Errorf("%+v: want 24 blocks live, 12 at a quarter of the time, and no growth in the second half", x)
	}
	for i := range uint64(8) {
		tensor(Free, 16, i+1)
	}
	totals.Classes[1].Frees, totals.Classes[1].FreeBytes = 24, 24*512
	l.Tell(TensorReading{Time: 16e9, Totals: []TensorTotals{totals}})
	x = l.Snapshot(16e9, time.Time{}).Sites[0]
	if x.LiveBytes != 0 || x.AllocBytes != 24*512 || x.History[15] != 8*4*512 || x.Growth != -8*4*512 {
		t.Errorf("%+v: want 24 blocks freed, and before that 8 times the 4 that each stood for", x)
	}
}

func TestPartsOfAProcessWithoutPyTorch(t *testing.T) {
	l := play(t, `
devices GPU-a
usage t=1 GPU-a=300
alloc t=2 addr=a0 size=100 stack=1
alloc t=2 addr=b0 size=50 stack=1 kind=async
alloc t=2 addr=c0 size=7 stack=1 kind=pinned
alloc t=2 addr=d0 size=9 stack=1 kind=imported
usage t=3 GPU-a=460`)
	s := l.Snapshot(4e9, time.Time{})
	want := []Part{{UUID: "GPU-a", Driver: 150, Foreign: 300, Unexplained: 10, Usage: 460}}
	if got := s.Parts(); !slices.Equal(got, want) || len(s.Tensors) != 0 {
		t.Errorf("%+v and tensors %v, want %+v and none", got, s.Tensors, want)
	}
}

// tensorsOfAJob books live tensors, all in the sample, of 10,000 stacks.
func tensorsOfAJob(l *Ledger, live uint64) []Block {
	list := make([]Block, 0, live)
	for i := range live {
		b := Block{Address: 0x7f0000000000 + i*2048, Size: 512 << (i % 3)}
		list = append(list, b)
		l.Apply(&Event{Op: Alloc, Kind: Tensor, Space: Blocks, PID: 7, TID: 7, Time: i * 1000, Address: b.Address, Size: b.Size, Stack: 1 + i%10000, API: "torch"})
	}
	return list
}

func TestTwoMillionTensorsNeedLessThan305MB(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 305 MB")
	}
	before := heapBytes()
	l := New(Options{})
	for i := range uint64(2000) {
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, TID: 7, Address: 0x7f0000000000 + i<<21, Size: 2 << 20, Stack: 1, API: "cudaMalloc"})
	}
	list := tensorsOfAJob(l, 2e6)
	began := time.Now()
	l.Tell(BlockList{PID: 7, Blocks: list})
	placing := time.Since(began)
	used := heapBytes() - before
	began = time.Now()
	s := l.Snapshot(1e10, time.Time{})
	t.Logf("%d MB, placing took %v, the snapshot %v", used/1e6, placing, time.Since(began))
	if used > 305e6 {
		t.Errorf("%d MB", used/1e6)
	}
	if x := s.Tensors[0]; x.LiveObjects != 2e6 || x.Cached+x.LiveBytes != x.Segments {
		t.Errorf("%+v", x)
	}
	runtime.KeepAlive(list)
}
