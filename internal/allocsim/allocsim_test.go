// SPDX-License-Identifier: Apache-2.0

package allocsim

import (
	"errors"
	"math/rand"
	"syscall"
	"testing"
	"time"
)

// script writes a trace as lines of operations.
type script struct {
	*Builder
}

func newScript(start ...Segment) script {
	return script{NewBuilder(&Trace{Version: "2.6.0", Start: start})}
}

func (s script) malloc(size uint64) uint32 { return s.on(0, 0, size) }

func (s script) on(stream, pool uint32, size uint64) uint32 {
	b := s.New(Block{Requested: size, Stream: stream, Pool: pool})
	s.Add(Malloc, b)
	return b
}

func mustRun(t *testing.T, tr *Trace, s Settings, o Options) Result {
	t.Helper()
	r, err := Run(tr, s, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSegmentsAndSplitsFollowTheRulesOf26(t *testing.T) {
	for _, c := range []struct {
		name     string
		settings string
		sizes    []uint64
		want     uint64 // reserved
	}{
		{"small blocks share 2 MiB", "", []uint64{1, mib, 512 << 10}, 2 * mib},
		{"below 10 MiB are cut from 20", "", []uint64{mib + 1, 9 * mib}, 20 * mib},
		{"a rest of 1 MiB stays with its block", "", []uint64{9 * mib, 10 * mib, 2 * mib}, 40 * mib},
		{"large ones are rounded to 2 MiB", "", []uint64{11 * mib}, 12 * mib},
		{"expandable maps 20 MiB", "expandable_segments:True", []uint64{11 * mib, 9 * mib}, 20 * mib},
		{"expandable maps small ones by 2 MiB", "expandable_segments:True", []uint64{mib, mib, 1}, 4 * mib},
		{"divisions round 10 MiB and a byte to 12", "roundup_power2_divisions:4", []uint64{10*mib + 1}, 12 * mib},
	} {
		s, err := ParseSettings(c.settings)
		if err != nil {
			t.Fatal(err)
		}
		b := newScript()
		for _, size := range c.sizes {
			b.malloc(size)
		}
		if got := mustRun(t, b.Trace(), s, Options{}); got.PeakReserved != c.want || got.EndReserved != c.want {
			t.Errorf("%s: %d MiB at most, %d at the end, want %d", c.name, got.PeakReserved/mib, got.EndReserved/mib, c.want/mib)
		}
	}
}

func TestOversizeBlocksAreNotSplitAndGoBackFirst(t *testing.T) {
	b := newScript()
	first := b.malloc(100 * mib)
	b.Add(Free, first)
	b.malloc(40 * mib) // max_split_size_mb:64 keeps it out of the 100 MiB
	tr := b.Trace()
	if got := mustRun(t, tr, Settings{}, Options{}); got.PeakReserved != 100*mib {
		t.Errorf("without a limit: %d MiB", got.PeakReserved/mib)
	}
	limited := Settings{MaxSplit: 64 * mib}
	if got := mustRun(t, tr, limited, Options{}); got.PeakReserved != 140*mib {
		t.Errorf("with a limit: %d MiB", got.PeakReserved/mib)
	}
	if got := mustRun(t, tr, limited, Options{Capacity: 130 * mib}); got.Failed >= 0 || got.Retries != 0 || got.PeakReserved != 100*mib {
		t.Errorf("on 130 MiB: %+v", got)
	}
}

func TestStreamsAndPoolsKeepTheirMemoryApart(t *testing.T) {
	b := newScript()
	b.Add(Free, b.on(0, 0, 30*mib))
	b.Add(Free, b.on(1, 0, 30*mib))
	b.Add(Free, b.on(0, 7, 30*mib))
	b.Add(EmptyCache, 0)
	if got := mustRun(t, b.Trace(), Settings{}, Options{}); got.PeakReserved != 90*mib || got.EndReserved != 30*mib {
		t.Errorf("with the pool: %+v", got)
	}
	b.Add(PoolReleased, 7)
	b.Add(EmptyCache, 0)
	if got := mustRun(t, b.Trace(), Settings{}, Options{}); got.EndReserved != 0 {
		t.Errorf("without it: %+v", got)
	}
}

func TestOutOfMemoryWaitsForStreamsAndGivesTheCacheBack(t *testing.T) {
	b := newScript()
	late := b.malloc(30 * mib)
	b.Add(FreeRequested, late)
	b.malloc(40 * mib)
	b.Add(FreeCompleted, late) // already completed where memory ran out
	b.malloc(20 * mib)
	tr := b.Trace()
	got := mustRun(t, tr, Settings{}, Options{Capacity: 60 * mib})
	if got.Failed >= 0 || got.Retries != 1 || got.EndReserved != 60*mib {
		t.Errorf("%+v", got)
	}
	got = mustRun(t, tr, Settings{}, Options{Capacity: 58 * mib})
	if got.Failed != 4 || got.FailedReserved != 40*mib {
		t.Errorf("2 MiB less: %+v", got)
	}
}

func TestEmptyCacheKeepsWhatABlockHolds(t *testing.T) {
	for _, s := range []Settings{{}, {Expandable: true}} {
		b := newScript()
		first := b.malloc(40 * mib)
		b.malloc(2 * mib)
		last := b.malloc(40 * mib)
		b.Add(Free, first)
		b.Add(Free, last)
		b.Add(Step, 0)
		tr := b.Trace()
		s.EmptyEvery = 1
		got := mustRun(t, tr, s, Options{})
		// cudaMalloc: three segments of 40, 20 and 40 MiB, the 20 stay. Expandable: 100 MiB, of
		// which the block lies in the third piece of 20.
		if got.PeakReserved != 100*mib || got.EndReserved != 20*mib {
			t.Errorf("%+v: %+v", s, got)
		}
	}
}

func TestOrderMattersOnlyWhereBlocksOfOneSizeLieInTwoSegments(t *testing.T) {
	b := newScript()
	one, _ := b.malloc(12*mib), b.malloc(12*mib)
	two, _ := b.malloc(6*mib), b.malloc(14*mib)
	_, _ = one, two
	b.Add(Free, one)
	b.malloc(12 * mib)
	if got := mustRun(t, b.Trace(), Settings{}, Options{}); got.OrderMatters {
		t.Error("whole segments of equal size are the same")
	}
	b = newScript()
	var freed []uint32
	for _, second := range []uint64{3 * mib, 4 * mib} {
		freed = append(freed, b.malloc(9*mib))
		b.malloc(11*mib - second)
		freed = append(freed, b.malloc(second))
	}
	for _, f := range freed {
		b.Add(Free, f)
	}
	b.malloc(9 * mib)
	got := mustRun(t, b.Trace(), Settings{}, Options{})
	if !got.OrderMatters {
		t.Errorf("two free blocks of 9 MiB in two segments: %+v", got)
	}
}

func TestTheOrderOfAddressesChangesWhatEmptyCacheFinds(t *testing.T) {
	b := newScript()
	one, keeps := b.malloc(9*mib), b.malloc(11*mib)
	two, goes := b.malloc(9*mib), b.malloc(11*mib)
	b.Add(Free, one)
	b.Add(Free, two)
	b.malloc(9 * mib) // beside keeps or beside goes
	b.Add(Free, goes)
	b.Add(EmptyCache, 0)
	_ = keeps
	found := map[uint64]bool{}
	for o := range Order(Orders) {
		got := mustRun(t, b.Trace(), Settings{}, Options{Order: o})
		if !got.OrderMatters {
			t.Fatalf("%+v", got)
		}
		found[got.EndReserved] = true
	}
	if !found[20*mib] || !found[40*mib] {
		t.Errorf("at the end: %v", found)
	}
}

func TestUnprovenVersionsAreRefused(t *testing.T) {
	for _, v := range []string{"", "1.13.1", "2.5.1", "2.7.0+cu126", "2.60", "x"} {
		if _, err := Run(&Trace{Version: v}, Settings{}, Options{}); err == nil {
			t.Errorf("%q is replayed", v)
		}
	}
	for _, v := range []string{"2.6.0", "2.6.0a0+git1234567", "2.6"} {
		if _, err := Run(&Trace{Version: v}, Settings{}, Options{}); err != nil {
			t.Error(err)
		}
	}
}

func TestTracesThatContradictThemselvesAreErrors(t *testing.T) {
	ops := map[string][]Op{
		"malloc twice":      {{Kind: Malloc}, {Kind: Malloc}},
		"free before":       {{Kind: Free}},
		"free twice":        {{Kind: Malloc}, {Kind: Free}, {Kind: Free}},
		"complete a live":   {{Kind: Malloc}, {Kind: FreeCompleted}},
		"free of a waiting": {{Kind: Malloc}, {Kind: FreeRequested}, {Kind: Free}},
		"no such block":     {{Kind: Malloc, Block: 1}},
		"unknown kind":      {{Kind: 99}},
	}
	for name, ops := range ops {
		if _, err := Run(&Trace{Version: "2.6", Ops: ops, Blocks: make([]Block, 1)}, Settings{}, Options{}); err == nil {
			t.Errorf("%s is replayed", name)
		}
	}
	for name, s := range map[string]Segment{
		"parts too short": {Size: 2 * mib, Parts: []Part{{Size: mib}}},
		"unmapped":        {Size: 2 * mib, Parts: []Part{{Size: 2 * mib, State: PartUnmapped}}},
		"no parts":        {},
		"block twice":     {Size: 2 * mib, Parts: []Part{{Size: mib, State: PartLive}, {Size: mib, State: PartLive}}},
		"huge":            {Size: 1 << 60, Parts: []Part{{Size: 1 << 60}}},
	} {
		if _, err := Run(&Trace{Version: "2.6", Start: []Segment{s}, Blocks: make([]Block, 1)}, Settings{}, Options{}); err == nil {
			t.Errorf("%s is replayed", name)
		}
	}
}

func TestAStartGoesOnWhereTheAllocatorWas(t *testing.T) {
	start := Segment{Address: 1 << 40, Size: 40 * mib, Parts: []Part{
		{Size: 10 * mib, State: PartLive, Block: 0}, {Size: 14 * mib}, {Size: 4 * mib, State: PartWaiting, Block: 1}, {Size: 12 * mib}}}
	tr := &Trace{Version: "2.6", Start: []Segment{start}, Blocks: []Block{{Requested: 10 * mib}, {Requested: 4 * mib}}}
	b := NewBuilder(tr)
	s := script{b}
	s.malloc(13 * mib)
	b.Add(FreeCompleted, 1)
	s.malloc(16 * mib) // 4 of the wait and 12
	got := mustRun(t, b.Trace(), Settings{}, Options{})
	if got.PeakReserved != 40*mib {
		t.Errorf("%+v", got)
	}
}

func TestVerifyFindsADifference(t *testing.T) {
	b := newScript()
	for i, size := range []uint64{3 * mib, 5 * mib, 30 * mib} {
		b.malloc(size)
		b.Block(uint32(i)).Address = []uint64{1 << 40, 1<<40 + 3*mib, 1 << 30}[i]
	}
	tr := b.Trace()
	tr.Reserved = []Reserved{{0, 20 * mib}, {2, 50 * mib}}
	p, err := Verify(tr)
	if err != nil || p != (Proof{3, 3, 2}) {
		t.Errorf("%+v, %v", p, err)
	}
	var m *Mismatch
	tr.Blocks[1].Address += 512
	if _, err := Verify(tr); !errors.As(err, &m) || m.What != "address" || m.Op != 1 {
		t.Error(err)
	}
	tr.Blocks[1].Address -= 512
	tr.Reserved[1].Bytes += 2 * mib
	if _, err := Verify(tr); !errors.As(err, &m) || m.What != "reserved" || m.Got != 50*mib {
		t.Error(err)
	}
}

func TestDerivedTraces(t *testing.T) {
	b := newScript()
	var all []uint32
	for range 4 {
		all = append(all, b.malloc(32*mib))
	}
	b.Add(FreeRequested, all[3])
	b.Add(FreeCompleted, all[3])
	tr := b.Trace()
	if got := mustRun(t, tr.Drop(func(n uint32) bool { return n == all[1] || n == all[3] }), Settings{}, Options{}); got.PeakReserved != 64*mib {
		t.Errorf("dropped: %d MiB", got.PeakReserved/mib)
	}
	half := tr.Resize(func(_ uint32, b Block) uint64 { return b.Requested / 2 })
	if got := mustRun(t, half, Settings{}, Options{}); got.PeakReserved != 64*mib || tr.Blocks[0].Requested != 32*mib {
		t.Errorf("half: %d MiB", got.PeakReserved/mib)
	}
	if l := tr.Lives()[all[3]]; l != (Life{3, 4, 5}) {
		t.Errorf("%+v", l)
	}
}

func TestSettingsAreParsedAsPyTorchDoes(t *testing.T) {
	for conf, want := range map[string]string{
		"": "",
		"expandable_segments:True, max_split_size_mb:32":                     "expandable_segments:True,max_split_size_mb:32",
		"garbage_collection_threshold:0.6,pinned_num_register_threads:8":     "garbage_collection_threshold:0.6",
		"roundup_power2_divisions:4,":                                        "roundup_power2_divisions:4",
		"roundup_power2_divisions:[256:1,512:2,1024:4,>:8],backend:native":   "roundup_power2_divisions:[1:1,2:1,4:1,8:1,16:1,32:1,64:1,128:1,256:1,512:2,1024:4,2048:8,4096:8,8192:8,16384:8,32768:8]",
		"expandable_segments:True,expandable_segments:False":                 "",
		"roundup_power2_divisions:[64:8,128:4,256:2],max_split_size_mb:4096": "max_split_size_mb:4096,roundup_power2_divisions:[1:8,2:8,4:8,8:8,16:8,32:8,64:8,128:4,256:2,512:0,1024:0,2048:0,4096:0,8192:0,16384:0,32768:0]",
	} {
		s, err := ParseSettings(conf)
		if err != nil || s.String() != want {
			t.Errorf("%q: %q, %v", conf, s.String(), err)
		}
		if again, err := ParseSettings(s.String()); err != nil || again != s {
			t.Errorf("%q does not come back: %v", conf, err)
		}
	}
	for _, conf := range []string{"x", "expandable_segments:yes", "max_split_size_mb:20", "backend:cudaMallocAsync", "garbage_collection_threshold:1",
		"roundup_power2_divisions:3", "roundup_power2_divisions:[256:1", "per_process_memory_fraction:0.5", "max_split_size_mb:-1", "]", "a:[b,c:d"} {
		if s, err := ParseSettings(conf); err == nil {
			t.Errorf("%q is %q", conf, s.String())
		}
	}
}

func TestPermutationsAreOneToOne(t *testing.T) {
	for seed := uint32(2); seed < 4; seed++ {
		seen := make([]bool, 1<<23)
		for n := range uint32(1 << 23) {
			p := permute(n, seed)
			if seen[p] {
				t.Fatalf("seed %d: %d twice", seed, p)
			}
			seen[p] = true
		}
	}
}

// training is a trace like a training's: activations on a stack, gradients, some blocks without
// end.
func training(ops int, r *rand.Rand) *Trace {
	b := newScript()
	for range 300 {
		b.malloc(uint64(r.Intn(8 * mib)))
	}
	for len(b.trace.Ops) < ops {
		var stack []uint32
		scale := uint64(64 + r.Intn(64))
		for i := range 400 {
			stack = append(stack, b.malloc(scale*uint64(1+i%37)*1024))
			if i%3 == 0 {
				b.Add(Free, b.malloc(scale*4096))
			}
		}
		for i := range stack {
			grad := b.malloc(scale * 2048)
			b.Add(Free, stack[len(stack)-1-i])
			b.Add(Free, grad)
		}
		b.Add(Step, 0)
	}
	return b.Trace()
}

// processorTime is what the process has used: on a busy machine it says more than the clock.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkReplay gives the seconds of a clock and of processor time for 10 million operations, of
// which DESIGN.md wants at most 5, beside millions of operations a second.
func BenchmarkReplay(b *testing.B) {
	t := training(1_000_000, rand.New(rand.NewSource(1)))
	for _, s := range []Settings{{}, {Expandable: true}, {MaxSplit: 32 * mib}, {EmptyEvery: 3}, {Expandable: true, EmptyEvery: 3}} {
		name := s.String()
		if name == "" {
			name = "default"
		}
		b.Run(name, func(b *testing.B) {
			before := processorTime(b)
			for b.Loop() {
				if _, err := Run(t, s, Options{}); err != nil {
					b.Fatal(err)
				}
			}
			ops := float64(len(t.Ops)) * float64(b.N)
			b.ReportMetric(ops/b.Elapsed().Seconds()/1e6, "Mops/s")
			b.ReportMetric(b.Elapsed().Seconds()/ops*1e7, "s/10Mops")
			b.ReportMetric((processorTime(b)-before).Seconds()/ops*1e7, "cpu-s/10Mops")
		})
	}
}
