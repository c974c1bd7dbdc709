// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/modelpart"
	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

// memory is a File in memory with a maximum size.
type memory struct {
	mu    sync.Mutex
	b     []byte
	limit int // 0: unlimited
}

var errFull = errors.New("no space left on device")

func (m *memory) WriteAt(b []byte, offset int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(b)
	if m.limit > 0 {
		n = max(0, min(n, m.limit-int(offset)))
	}
	m.b = append(m.b[:offset], b[:n]...)
	if n < len(b) {
		return n, errFull
	}
	return n, nil
}

func (m *memory) Truncate(size int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.b = m.b[:size]
	return nil
}

func (m *memory) bytes() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return bytes.Clone(m.b)
}

func (m *memory) read(t testing.TB) *Reader {
	t.Helper()
	b := m.bytes()
	r, err := NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// both feeds a ledger and a Writer, as the tracer does.
type both struct {
	*ledger.Ledger
	w *Writer
}

func (b both) Apply(e *ledger.Event) { b.w.Apply(e); b.Ledger.Apply(e) }
func (b both) Tell(in ledger.Input)  { b.w.Tell(in); b.Ledger.Tell(in) }

// clock simulates CLOCK_MONOTONIC.
type clock struct {
	mu  sync.Mutex
	now uint64
}

func (c *clock) read() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) set(now uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
}

// session generates random inputs of all kinds, as a hostile machine would.
type session struct {
	walk   uint64 // when the latest walk began
	rng    *rand.Rand
	clock  *clock
	books  ledger.Books
	stacks fakeStacks
	totals *rand.Rand // for the totals of events; nil: events without totals, as in old captures
}

const sessionBegin = 100e9

func (s *session) run(steps int) {
	s.books.Tell(ledger.Sampling{0.5, 0.25, 1})
	s.books.Tell(ledger.SampleRate{Mean: 1 << 20, Limit: 4000})
	s.books.Tell(ledger.Begin{Time: sessionBegin})
	for i := range steps {
		s.clock.set(sessionBegin + uint64(i)*1e6)
		s.step(uint64(i))
		s.stacks.known.Store(i > steps/2)
	}
}

// ifTotals clears what captures lacked when events had no totals.
func (s *session) ifTotals(n uint32) uint32 {
	if s.totals == nil {
		return 0
	}
	return n
}

func (s *session) countsBy(pid uint32, n uint64) map[uint32]uint64 {
	if s.totals == nil {
		return nil
	}
	return map[uint32]uint64{pid: n, 2: 1}
}

func (s *session) step(i uint64) {
	r := s.rng
	pid := uint32(1 + r.Uint64N(3))
	now := s.clock.read()
	uuids := []string{"GPU-a", "GPU-b", ""}
	switch r.Uint64N(200) {
	case 0:
		s.books.Tell(ledger.Process{
			PID: pid, Comm: fmt.Sprint("comm", i), Exe: "/usr/bin/\u00e9", Begin: now * (i % 2), User: s.ifTotals(pid),
			Workload: ledger.Workload{Container: "c", Pod: "p", Namespace: "n", Job: "j", Rank: "0", LocalRank: "1", WorldSize: "2"},
			Devices:  [][]string{nil, uuids[:2]}[i%2],
		})

	case 1:
		s.books.Tell(ledger.Devices{PID: pid, UUIDs: uuids[:r.Uint64N(4)]})
	case 2:
		s.books.Tell(ledger.GPUs([]ledger.GPU{{Index: 0, UUID: "GPU-a", Name: "H100", Total: 80 << 30, Used: i}, {Index: 1, UUID: "GPU-b", Parent: "GPU-a"}}[:r.Uint64N(3)]))
	case 3:
		s.books.Tell(ledger.UsageReading{Time: now, Usages: []ledger.Usage{{PID: pid, UUID: "GPU-a", Bytes: r.Uint64N(1 << 40), Rough: i%3 == 0}, {PID: 4, UUID: "GPU-b", Bytes: i}}})
	case 4:
		x := ledger.TensorTotals{PID: pid, Device: int32(r.Uint64N(3)) - 2, Reported: now, Allocated: r.Uint64N(1 << 40), Reserved: 1 << 40, OlderFrees: 1, OlderBytes: 2, Unbooked: i % 2}
		if i%2 == 0 {
			x.Classes = make([]ledger.ClassTotals, ledger.SizeClasses)
			x.Classes[r.Uint64N(128)] = ledger.ClassTotals{Allocs: 10 + i, AllocBytes: i << 20, Frees: 9, FreeBytes: 3 << 20}
		}
		s.books.Tell(ledger.TensorReading{Time: now, Totals: []ledger.TensorTotals{x}})
	case 5:
		list := make([]ledger.Block, r.Uint64N(40))
		for j := range list {
			list[j] = ledger.Block{Address: r.Uint64N(64) << 9, Size: r.Uint64N(4096), Device: int32(r.Uint64N(2))}
		}
		s.books.Tell(ledger.BlockList{PID: pid, Blocks: list})
	case 6:
		s.books.Tell(ledger.Segments{r.Uint64N(8), r.Uint64()})
	case 7:
		s.books.Tell(ledger.Stats{Lost: i, Stacks: 2 * i, NoStack: 3, Missing: map[string]uint64{"x": 1, "y": i}, Torn: 4, Truncated: map[string]uint64{"a": i, "b": 1}, LostBy: s.countsBy(pid, i), StacksBy: s.countsBy(3, i)})
	case 8:
		s.books.Tell(ledger.Warning{Text: fmt.Sprintf("a warning of step %d", i%7)})
		if s.totals != nil {
			s.books.Tell(ledger.Warning{PID: pid, Text: fmt.Sprintf("process %d: a warning of step %d", pid, i%100)})
			s.books.Tell(ledger.Limits{Sites: 1 << 12 >> (i % 8), Live: 1 << 14 >> (i % 8)})
			s.books.Tell(ledger.Forget{Before: now - i%3*1e9})
			s.books.Tell(ledger.Fold{PID: uint32(i % 4), Below: i % 5 << 16})
		}
	default:
		s.event(now, pid)
	}
	if s.totals != nil && i%500 == 0 {
		s.walk = now
		s.books.Tell(ledger.WalkOpened{PID: pid, Time: now})
	} else if s.totals != nil && i%500 < 4 {
		s.books.Tell(s.randomWalk(pid, i))
	}
}

// randomWalk has more holders and storages than one part has room for, now and then.
func (s *session) randomWalk(pid uint32, i uint64) ledger.Walk {
	r := s.rng
	walk := ledger.Walk{PID: pid, Time: s.walk, Took: i, Problems: []string{"a problem"}}
	if i%5 == 0 {
		walk.Problems, walk.Failure = nil, "cannot read this Python"
		return walk
	}
	for n := range 1 + i%7*50 {
		walk.Holders = append(walk.Holders, ledger.Holder{
			Retention: retention.Known | retention.Set(n%64)<<1,
			Parts:     modelpart.Bytes{modelpart.Weight: n, modelpart.None: 512},
			Device:    int32(n%3) - 1, Path: fmt.Sprint("model.layers.*.w", n), Frames: []string{"__main__", "model", fmt.Sprint("w", n)}, Class: "Model",
			Also: []string{"x", "y"}[:1+n%2], Container: "list", Containers: int(n), Entries: int(n) - 1, Found: n%2 == 0,
		})
	}
	for range i % 64 {
		walk.Storages = append(walk.Storages, ledger.Storage{
			Address: r.Uint64N(64) << 9, Bytes: r.Uint64N(1 << 20), Block: r.Uint64N(2) << 20, Holder: uint32(r.Uint64N(uint64(len(walk.Holders)))),
			InMotion: r.Uint64N(2) == 0, Allocation: r.Uint64N(4) == 0,
		})
	}
	return walk
}

func (s *session) event(now uint64, pid uint32) {
	r := s.rng
	e := ledger.Event{
		Op: ledger.Op(r.Uint64N(24)), Kind: ledger.Kind(r.Uint64N(11)), Space: ledger.Space(r.Uint64N(7)), PID: pid, TID: pid + uint32(r.Uint64N(3)),
		Device: int32(r.Uint64N(5)) - 2, Result: int32(r.Uint64N(3)) - 1, Time: now - r.Uint64N(1e6), Address: r.Uint64N(64) << 9, Size: r.Uint64N(1 << 20),
		Stack: r.Uint64N(9), Context: r.Uint64N(3), Halvings: uint8(r.Uint64N(4)), API: []string{"cudaMalloc", "torch", "cuMemFree_v2"}[r.Uint64N(3)],
	}
	if r.Uint64N(3) > 0 {
		e.Op = []ledger.Op{ledger.Alloc, ledger.Free}[r.Uint64N(2)]
	}
	switch r.Uint64N(40) {
	case 0:
		e.Handle = r.Uint64()
	case 1:
		e.Size, e.Address, e.Context = r.Uint64(), r.Uint64(), r.Uint64()
	case 2:
		e.Size = ledger.UnknownSize
	case 3:
		e.Stack = r.Uint64()
	}
	if x := s.totals; x != nil && x.Uint64N(3) > 0 {
		e.Told, e.Allocated, e.Reserved = ledger.ToldAllocated, x.Uint64N(1<<40), x.Uint64()
		if x.Uint64N(2) > 0 {
			e.Told, e.Live = e.Told|ledger.ToldLive, x.Uint64()
		}
	}
	s.books.Apply(&e)
}

// fakeStacks returns small ids from the middle of a session on.
type fakeStacks struct{ known *atomic.Bool }

func (f fakeStacks) Stack(id uint64) []callstack.Frame {
	if id > 100 || id == 0 || !f.known.Load() {
		return nil
	}
	return framesOf(id)
}

var libtorch = &callstack.Mapping{Path: "/usr/lib/libtorch.so \xff", BuildID: "abcd", Start: 0x1000, Limit: 0x9000, Offset: 0x400}

func framesOf(id uint64) []callstack.Frame {
	frames := []callstack.Frame{
		{Function: "c10::alloc(int)", SystemName: "_ZN3c105allocEi", File: "alloc.cpp", Line: int(id), StartLine: 3, Address: 0x1000 + id, Mapping: libtorch},
		{Function: "inner", SystemName: "inner", Address: 0x1000 + id, Mapping: libtorch, Inlined: true},
		{Function: "main", SystemName: "main", Address: 1 << 63, Mapping: &callstack.Mapping{Path: "/bin/app"}},
		{Function: "train", File: "train.py", Line: 12, StartLine: 10, Python: true},
		{Function: "[truncated: too deep]", Mark: true},
	}
	return frames[:1+id%5]
}

// record runs a random session and returns its file and its last snapshot.
func record(t testing.TB, seed uint64, steps int, file *memory) (*ledger.Snapshot, error) {
	t.Helper()
	return recordSession(t, seed, steps, file, rand.New(rand.NewPCG(seed, 2)))
}

func recordSession(t testing.TB, seed uint64, steps int, file *memory, totals *rand.Rand) (*ledger.Snapshot, error) {
	t.Helper()
	c := &clock{now: sessionBegin - 5e9}
	w, err := NewWriter(file, Options{Host: "host", Tool: "vramprof test", Clock: c.read, batch: 500, Wall: time.Unix(1700000000, 5)})
	if err != nil {
		return nil, err
	}
	l := ledger.New(ledger.Options{Begin: c.now, Host: "host"})
	s := session{totals: totals, rng: rand.New(rand.NewPCG(seed, 1)), clock: c, books: both{l, w}, stacks: fakeStacks{&atomic.Bool{}}}
	w.SetStacks(s.stacks)
	s.run(steps)
	c.set(c.read() + 1e9)
	snapshot := l.Snapshot(c.read(), time.Unix(1700000099, 7).UTC())
	l.AddStuck(snapshot)
	l.AddPeaks(snapshot)
	snapshot.Warnings = append(snapshot.Warnings, "a warning of the session")
	return snapshot, w.End(snapshot)
}

func TestReplayReproducesTheLedger(t *testing.T) {
	forgotten := uint64(0)
	for seed := range uint64(6) {
		var file memory
		want, err := record(t, seed, 20000, &file)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			r := file.read(t)
			got, err := r.Snapshot(math.MaxUint64)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: replayed books differ:\n%+v\nwant\n%+v", seed, got, want)
			}
			for id := range uint64(10) {
				var want []callstack.Frame
				if id > 0 && id < 9 {
					want = framesOf(id)
				}
				if got := r.Stack(id); !reflect.DeepEqual(got, want) {
					t.Fatalf("stack %d: %+v, want %+v", id, got, want)
				}
			}
			if r.Begin() != sessionBegin || r.End() != want.End || r.Host() != "host" || !r.Ended() || len(r.Warnings()) != 0 {
				t.Errorf("begin %d, end %d, host %q, warnings %q", r.Begin(), r.End(), r.Host(), r.Warnings())
			}
			forgotten += got.Forgotten.Processes * got.Stats.Folded
		}
	}
	if forgotten == 0 {
		t.Error("no process was forgotten, or no site lost its stack")
	}
}

var update = flag.Bool("update", false, "write testdata/v1.vram")

// TestCapturesOfThisVersionStayReadable reads a file that an earlier build wrote. If you need
// -update, you have changed the format and must change its version.
func TestCapturesOfThisVersionStayReadable(t *testing.T) {
	const path = "testdata/v1.vram"
	var file memory
	want, err := recordSession(t, 3, 300, &file, nil)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, file.b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := r.Snapshot(math.MaxUint64)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range want.Warnings {
		if !slices.Contains(got.Warnings, text) {
			t.Errorf("the old capture has warnings %q, want also %q", got.Warnings, text)
		}
	}
	got.Warnings = want.Warnings // it also has those of its end, in the words of its time
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the old capture contains %+v, want %+v", got, want)
	}
	if got, want := logOf(t, r), logOf(t, file.read(t)); !slices.Equal(got, want) {
		t.Errorf("the old capture has %d inputs, or others than the current %d", len(got), len(want))
	}
	if !reflect.DeepEqual(r.Stack(2), framesOf(2)) {
		t.Errorf("stack 2: %+v", r.Stack(2))
	}
}
