// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// machine is a session whose program allocates, and a clock that the test sets.
type machine struct {
	t    *testing.T
	dir  string
	mu   sync.Mutex
	now  uint64
	wall time.Time
	live map[uint64]ledger.Event
	w    *Writer
	l    *ledger.Ledger // of the session
	next uint64         // address
	note []string
}

func newMachine(t *testing.T) *machine {
	return &machine{
		t: t, dir: filepath.Join(t.TempDir(), "archive"), now: 1e12, live: map[uint64]ledger.Event{}, next: 1 << 20,
		wall: time.Date(2026, 11, 22, 3, 12, 0, 0, time.UTC),
	}
}

func (m *machine) clock() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

func (m *machine) pass(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now += uint64(d)
	m.wall = m.wall.Add(d)
}

func (m *machine) options() Options {
	return Options{
		Host: "gpu-7", Tool: "vramprof test", Size: 4 << 20, Clock: m.clock, Opening: m.opening,
		Wall: func() time.Time { m.mu.Lock(); defer m.mu.Unlock(); return m.wall },
		Note: func(text string) { m.mu.Lock(); defer m.mu.Unlock(); m.note = append(m.note, text) },
		step: time.Millisecond, again: 20 * time.Millisecond, interval: 5 * time.Millisecond,
	}
}

func (m *machine) open(o Options) {
	m.t.Helper()
	w, err := NewWriter(m.dir, o)
	if err != nil {
		m.t.Fatal(err)
	}
	m.w, m.l = w, ledger.New(ledger.Options{Begin: m.clock(), Host: o.Host})
	clear(m.live)
	m.t.Cleanup(func() { _ = w.End(nil) })
	m.tell(ledger.Begin{Time: m.clock()})
	m.tell(ledger.Process{PID: 42, Comm: "train", Begin: m.clock(), Workload: ledger.Workload{Pod: "bert-0", Namespace: "ml"}})
}

func (m *machine) opening(to ledger.Books) { m.l.Opening(to) }

func (m *machine) tell(in ledger.Input) {
	m.w.Tell(in)
	m.l.Tell(in)
}

func (m *machine) apply(e *ledger.Event) {
	m.w.Apply(e)
	m.l.Apply(e)
}

func (m *machine) alloc(size uint64) {
	m.pass(time.Microsecond)
	e := ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: 42, TID: 42, Time: m.clock(), Address: m.next, Size: size, API: "cudaMalloc", Stack: m.next % 7}
	m.next += 1 << 20
	m.apply(&e)
	m.live[e.Address] = e
}

func (m *machine) free(address uint64) {
	m.pass(time.Microsecond)
	m.apply(&ledger.Event{Op: ledger.Free, PID: 42, TID: 42, Time: m.clock(), Address: address, API: "cudaFree"})
	delete(m.live, address)
}

func (m *machine) sum() (bytes uint64) {
	for _, e := range m.live {
		bytes += e.Size
	}
	return bytes
}

// wait waits until what holds.
func (m *machine) wait(what string, holds func() bool) {
	m.t.Helper()
	for end := time.Now().Add(10 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatalf("%s does not come true: %+v", what, m.w.Stats())
		}
	}
}

func (m *machine) captures() (names []string) {
	m.t.Helper()
	paths, err := filepath.Glob(filepath.Join(m.dir, "*"+captureEnding))
	if err != nil {
		m.t.Fatal(err)
	}
	for _, path := range paths {
		names = append(names, filepath.Base(path))
	}
	return names
}

func liveAt(t *testing.T, path string) uint64 {
	t.Helper()
	r, err := capture.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s, err := r.Snapshot(r.End())
	if err != nil {
		t.Fatal(err)
	}
	var sum uint64
	for i := range s.Sites {
		sum += s.Sites[i].LiveBytes
	}
	return sum
}

func TestEachCaptureBeginsWithWhatLives(t *testing.T) {
	m := newMachine(t)
	m.open(m.options())
	var sums []uint64
	for range 4 {
		for range 300 {
			m.alloc(1 << 10)
		}
		for address := range m.live {
			if m.free(address); len(m.live)%100 == 0 {
				break
			}
		}
		sums = append(sums, m.sum())
		n := len(m.captures())
		m.pass(time.Hour)
		m.wait("another capture", func() bool { m.tell(ledger.GPUs{}); return len(m.captures()) > n && m.w.Stats().Files > n })
		m.wait("its opening", func() bool { m.tell(ledger.GPUs{}); m.w.mu.Lock(); defer m.w.mu.Unlock(); return m.w.next == nil })
	}
	if err := m.w.End(&ledger.Snapshot{End: m.clock(), Wall: m.wall}); err != nil {
		t.Fatal(err)
	}
	names := m.captures()
	if !slices.IsSorted(names) || len(names) < 5 {
		t.Fatalf("captures %q", names)
	}
	for i, sum := range sums {
		if got := liveAt(t, filepath.Join(m.dir, names[i])); got != sum {
			t.Errorf("%s ends with %d bytes live, want %d", names[i], got, sum)
		}
	}
	for _, name := range names {
		for _, name := range []string{name, strings.TrimSuffix(name, captureEnding) + indexEnding} {
			info, err := os.Stat(filepath.Join(m.dir, name))
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", name, info, err)
			}
		}
	}
	if info, err := os.Stat(m.dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v, %v", info, err)
	}
	if s := m.w.Stats(); s.LostEvents != 0 || s.LostTime != 0 {
		t.Errorf("lost: %+v", s)
	}
}

func TestArchiveStaysWithinItsSizeAndAge(t *testing.T) {
	m := newMachine(t)
	o := m.options()
	o.Size, o.FileSize = 1<<20, 64<<10
	m.open(o)
	size := func() (sum int64) {
		paths, _ := filepath.Glob(filepath.Join(m.dir, "2*"))
		for _, path := range paths {
			if info, err := os.Stat(path); err == nil {
				sum += info.Size()
			}
		}
		return sum
	}
	most, first := int64(0), m.captures()[0]
	seen := uint64(12345)
	for i := range 200_000 {
		seen = seen*6364136223846793005 + 1442695040888963407
		m.alloc(seen >> 40)
		if len(m.live) > 10 {
			for address := range m.live {
				m.free(address)
				break
			}
		}
		if i%500 == 0 {
			time.Sleep(2 * time.Millisecond)
			most = max(most, size())
		}
	}
	const frame = 128 << 10 // of 16,384 events, which are more here than the margin for a capture of 64 KiB
	if most > 1<<20+frame || most < 1<<18 {
		t.Errorf("the archive had up to %d bytes", most)
	}
	names := m.captures()
	if slices.Contains(names, first) || len(names) < 3 {
		t.Errorf("the first capture is still there: %q", names)
	}
	m.pass(31 * 24 * time.Hour)
	old := names[:len(names)-2] // the last ones may be written to later
	m.wait("the old ones to go", func() bool {
		return !slices.ContainsFunc(m.captures(), func(name string) bool { return slices.Contains(old, name) })
	})
}

func TestTwoWritersDoNotShareAFolder(t *testing.T) {
	m := newMachine(t)
	m.open(m.options())
	if _, err := NewWriter(m.dir, m.options()); !errors.Is(err, ErrInUse) {
		t.Errorf("the second: %v", err)
	}
	if err := m.w.End(nil); err != nil {
		t.Fatal(err)
	}
	m.open(m.options())
}

func TestNamesSortAndNeverCollide(t *testing.T) {
	m := newMachine(t)
	for _, step := range []time.Duration{0, 0, -48 * time.Hour, time.Minute, 72 * time.Hour} {
		m.wall = m.wall.Add(step)
		m.open(m.options())
		m.alloc(1)
		if err := m.w.End(nil); err != nil {
			t.Fatal(err)
		}
	}
	names := m.captures()
	if len(names) != 5 || names[0] != "20261122T031200Z-000001.vram" || !strings.HasSuffix(names[4], "-000005.vram") || !strings.HasPrefix(names[4], "20261123") {
		t.Errorf("names %q", names)
	}
}
