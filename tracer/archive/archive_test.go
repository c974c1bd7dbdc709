// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// turn has the Writer begin another capture.
func (m *machine) turn(after time.Duration) {
	m.t.Helper()
	m.pass(after)
	n := m.w.Stats().Files
	m.wait("another capture", func() bool {
		m.tell(ledger.UsageReading{Time: m.clock(), Usages: []ledger.Usage{{PID: 42, UUID: "GPU-1", Bytes: m.sum()}}})
		m.w.mu.Lock()
		next := m.w.next
		m.w.mu.Unlock()
		return next == nil && m.w.Stats().Files == n+1
	})
}

func (m *machine) read() *Archive {
	m.t.Helper()
	a, err := Open(m.dir)
	if err != nil {
		m.t.Fatal(err)
	}
	if p := a.Problems(); len(p) > 0 {
		m.t.Errorf("problems %q", p)
	}
	return a
}

// history is an archive of three hours.
func history(t *testing.T) *machine {
	m := newMachine(t)
	m.open(m.options())
	for range 2 {
		m.alloc(1 << 20)
		m.turn(time.Hour)
	}
	m.alloc(1 << 20)
	m.apply(&ledger.Event{Op: ledger.OutOfMemory, Kind: ledger.Device, PID: 42, Time: m.clock(), Size: 1 << 40, API: "cudaMalloc"})
	m.pass(time.Minute)
	if err := m.w.End(&ledger.Snapshot{End: m.clock(), Wall: m.wall}); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMomentsAreFoundInTheirCapture(t *testing.T) {
	m := history(t)
	a := m.read()
	begin := time.Date(2026, 11, 22, 3, 12, 0, 0, time.UTC)
	for _, x := range []struct {
		after time.Duration
		part  uint32
		live  uint64
	}{{time.Second, 0, 1 << 20}, {59 * time.Minute, 0, 1 << 20}, {61 * time.Minute, 1, 2 << 20}, {2*time.Hour + 30*time.Second, 2, 3 << 20}} {
		at, err := a.At(begin.Add(x.after))
		if err != nil {
			t.Fatal(err)
		}
		r, err := capture.Open(at.Capture.Path)
		if err != nil {
			t.Fatal(err)
		}
		s, err := r.Snapshot(at.Time)
		r.Close()
		if err != nil {
			t.Fatal(err)
		}
		var live uint64
		for _, site := range s.Sites {
			live += site.LiveBytes
		}
		if len(s.Processes) != 1 || s.Processes[0].Pod != "bert-0" || s.Processes[0].Begin != 1e12 {
			t.Errorf("after %v: processes %+v", x.after, s.Processes)
		}
		if at.Capture.Part != x.part || live != x.live || s.Wall.Sub(begin.Add(x.after)).Abs() > 10*time.Millisecond {
			t.Errorf("after %v: part %d, %d bytes, %v", x.after, at.Capture.Part, live, s.Wall)
		}
	}
	var missing *NotThere
	if _, err := a.At(begin.Add(-time.Hour)); !errors.As(err, &missing) || err.Error() != "the archive has nothing at 2026-11-22 02:12:00 UTC: it begins at 2026-11-22 03:12:00 UTC" {
		t.Errorf("before: %v", err)
	}
	if _, err := a.At(begin.Add(3 * time.Hour)); err == nil || err.Error() != "the archive has nothing at 2026-11-22 06:12:00 UTC: it ends at 2026-11-22 05:13:00 UTC" {
		t.Errorf("after: %v", err)
	}
	if gaps := a.Gaps(); len(gaps) != 0 {
		t.Errorf("gaps %v", gaps)
	}
}

func TestProcessesAreFoundOverAllCaptures(t *testing.T) {
	m := history(t)
	a := m.read()
	for _, f := range []Filter{{}, {Process: "train"}, {Process: "42"}, {Pod: "bert-0"}, {Pod: "ml/bert-0"}} {
		list, more := a.Processes(f)
		if len(list) != 1 || more != 0 || len(list[0].Captures) != 3 || list[0].OOMs != 1 || list[0].Pod != "bert-0" || list[0].Peak != 2<<20 || !list[0].Running {
			t.Errorf("%+v: %+v", f, list)
		}
	}
	for _, f := range []Filter{{Process: "4"}, {Pod: "ml"}, {To: m.wall.Add(-24 * time.Hour)}} {
		if list, _ := a.Processes(f); len(list) != 0 {
			t.Errorf("%+v: %+v", f, list)
		}
	}
	if list, _ := a.Errors(Filter{}); len(list) != 1 || list[0].Size != 1<<40 || list[0].Wall.IsZero() {
		t.Errorf("out of memory: %+v", list)
	}
}

// A process that outlives a restart of serve is one process of the archive; another one with its
// pid, or another program in it, is not.
func TestAProcessIsListedOnceAcrossARestart(t *testing.T) {
	for _, x := range []struct {
		name    string
		started uint64
		comm    string
		ends    bool
		want    int
	}{
		{"the same", 5000, "train", false, 1},
		{"another with its pid", 7000, "train", false, 2},
		{"another program in it", 5000, "sh", false, 2},
		{"ended and found again", 5000, "train", true, 2},
	} {
		t.Run(x.name, func(t *testing.T) {
			m := newMachine(t)
			m.open(m.options())
			m.tell(ledger.Process{PID: 42, Started: 5000})
			m.alloc(1 << 20)
			m.tell(ledger.UsageReading{Time: m.clock(), Usages: []ledger.Usage{{PID: 42, UUID: "GPU-1", Bytes: 9 << 20}}})
			if x.ends {
				m.apply(&ledger.Event{Op: ledger.Exit, PID: 42, TID: 42, Time: m.clock()})
			}
			if err := m.w.End(&ledger.Snapshot{End: m.clock(), Wall: m.wall}); err != nil {
				t.Fatal(err)
			}
			from := m.wall
			m.pass(time.Minute)
			m.open(m.options())
			m.tell(ledger.Process{PID: 42, Comm: x.comm, Started: x.started})
			m.alloc(1 << 20)
			m.tell(ledger.UsageReading{Time: m.clock(), Usages: []ledger.Usage{{PID: 42, UUID: "GPU-1", Bytes: 5 << 20}}})
			if err := m.w.End(&ledger.Snapshot{End: m.clock(), Wall: m.wall}); err != nil {
				t.Fatal(err)
			}
			list, _ := m.read().Processes(Filter{})
			if len(list) != x.want {
				t.Fatalf("%d processes, want %d: %+v", len(list), x.want, list)
			}
			if f := list[0]; x.want == 1 && (f.Peak != 9<<20 || !f.From.Before(from) || !f.To.Equal(m.wall) || !f.Running || len(f.Captures) != 2) {
				t.Errorf("found %+v", f)
			}
		})
	}
}

// TestIndexIsComposedFromItsCapture as the Writer has written it.
func TestIndexIsComposedFromItsCapture(t *testing.T) {
	m := history(t)
	for _, c := range m.read().Captures() {
		want, err := c.Index()
		if err != nil {
			t.Fatal(err)
		}
		got, err := composeIndex(c.Path)
		if err != nil {
			t.Fatal(err)
		}
		r, err := capture.Open(c.Path)
		if err != nil {
			t.Fatal(err)
		}
		if !r.Wall(want.Begin).Equal(want.From) || !r.Wall(want.End).Equal(want.To) {
			t.Errorf("%s is from %v to %v, its index from %v to %v", c.Name, r.Wall(want.Begin), r.Wall(want.End), want.From, want.To)
		}
		r.Close()
		got.Begin, got.End, got.From, got.To, got.Events = want.Begin, want.End, want.From, want.To, want.Events
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v\nwant %+v", c.Name, got, want)
		}
	}
}

// TestArchiveOfAKilledWriterIsWhole at whatever byte its last file ends.
func TestArchiveOfAKilledWriterIsWhole(t *testing.T) {
	m := newMachine(t)
	m.open(m.options())
	m.alloc(1 << 20)
	m.turn(time.Hour)
	m.alloc(1 << 20)
	m.wait("the event in the file", func() bool { m.w.mu.Lock(); defer m.w.mu.Unlock(); return m.w.current.writer.Stored().Events == 1 })
	last := m.captures()[1]
	whole, err := os.ReadFile(filepath.Join(m.dir, last))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.w.End(nil); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(filepath.Join(m.dir, strings.TrimSuffix(last, captureEnding)+indexEnding))
	for i, size := range []int{len(whole), len(whole) - 1, len(whole) / 2, 200, 100, 20, 1, 0} {
		if err := os.WriteFile(filepath.Join(m.dir, last), whole[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := Open(m.dir)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(a.Captures()); n < i+1 || n > i+2 {
			t.Errorf("%d bytes: %d captures, %q", size, n, a.Problems())
		}
		if _, err := a.At(time.Date(2026, 11, 22, 3, 12, 1, 0, time.UTC)); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
		a.Processes(Filter{})
		m.open(m.options()) // and goes on
		if err := m.w.End(nil); err != nil {
			t.Fatal(err)
		}
	}
	m.open(m.options())
	m.wait("what has nothing to go", func() bool {
		m.pass(time.Minute)
		a, err := Open(m.dir)
		return err == nil && len(a.Problems()) == 0 && len(m.captures()) == len(a.Captures())
	})
}

func TestHostileIndexIsBounded(t *testing.T) {
	m := history(t)
	c := m.read().Captures()[0]
	path := strings.TrimSuffix(c.Path, captureEnding) + indexEnding
	x := &Index{Version: indexVersion, Size: c.Size, Begin: 1, End: 2, Host: "\x1b[2J"}
	for i := range uint32(10_000) {
		x.Processes = append(x.Processes, Process{PID: i, Comm: "\x1b]0;" + strings.Repeat("x", 100)})
	}
	for _, content := range []any{x, nil, "x", map[string]any{"version": 1, "size": c.Size, "processes": 7}, strings.Repeat("[", 100_000)} {
		b, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		a := m.read()
		list, _ := a.Processes(Filter{})
		if len(list) > maxProcesses+1 || len(list) == 0 || strings.Contains(list[0].Comm, "\x1b") || strings.Contains(a.Captures()[0].Host, "\x1b") {
			t.Errorf("%d processes, host %q", len(list), a.Captures()[0].Host)
		}
	}
}

func TestCapturesThatGoMeanwhileAreNoError(t *testing.T) {
	m := history(t)
	a := m.read()
	for _, name := range m.captures()[:2] {
		_ = os.Remove(filepath.Join(m.dir, name))
	}
	_ = os.Symlink("/dev/zero", filepath.Join(m.dir, "20261122T031200Z-000099.vram"))
	_ = os.Mkdir(filepath.Join(m.dir, "20261122T031200Z-000098.vram"), 0o700)
	if list, _ := a.Processes(Filter{}); len(list) != 1 {
		t.Errorf("%d processes", len(list))
	}
	if n := len(m.read().Captures()); n != 1 {
		t.Errorf("%d captures", n)
	}
}

func TestGapsAreNamed(t *testing.T) {
	m := history(t)
	m.pass(time.Hour)
	m.open(m.options())
	m.alloc(1)
	if err := m.w.End(nil); err != nil {
		t.Fatal(err)
	}
	a := m.read()
	gaps := a.Gaps()
	if len(gaps) != 1 || gaps[0].To.Sub(gaps[0].From).Round(time.Second) != time.Hour || !gaps[0].Session || gaps[0].Reboot {
		t.Errorf("gaps %+v", gaps)
	}
	if _, err := a.At(gaps[0].From.Add(time.Minute)); err == nil || !strings.Contains(err.Error(), "nearest are 2026-11-22 05:13:00 UTC and 2026-11-22 06:13:01 UTC") {
		t.Errorf("in the gap: %v", err)
	}
}
