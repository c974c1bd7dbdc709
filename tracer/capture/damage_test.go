// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/capture/internal/wire"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// log records the inputs that it is told.
type log struct{ lines []string }

func (l *log) add(what string, values ...any) {
	l.lines = append(l.lines, what+" "+fmt.Sprintf("%+v", values))
}
func (l *log) Apply(e *ledger.Event) { l.add("event", *e) }
func (l *log) Tell(in ledger.Input)  { l.add(fmt.Sprintf("%T", in), in) }

func logOf(t testing.TB, r *Reader) []string {
	t.Helper()
	var l log
	if err := r.Play(math.MaxUint64, &l); err != nil {
		t.Fatal(err)
	}
	return l.lines
}

// isPrefix reports whether one log is a prefix of another.
func isPrefix(some, all []string) bool {
	return len(some) <= len(all) && slices.Equal(some, all[:len(some)])
}

// recorded returns the file and the inputs of a random session.
func recorded(t testing.TB) ([]byte, []string) {
	t.Helper()
	var file memory
	if _, err := record(t, 1, 6_000, &file); err != nil {
		t.Fatal(err)
	}
	return file.bytes(), logOf(t, file.read(t))
}

// TestTruncatedCaptureKeepsAllWholeFrames truncates the file as SIGKILL during a write would.
func TestTruncatedCaptureKeepsAllWholeFrames(t *testing.T) {
	whole, all := recorded(t)
	rng := rand.New(rand.NewPCG(7, 7))
	full, err := NewReader(bytes.NewReader(whole), int64(len(whole)))
	if err != nil {
		t.Fatal(err)
	}
	for range 60 {
		cut := int(full.frames[0].offset) + rng.IntN(len(whole)-int(full.frames[0].offset))
		r, err := NewReader(bytes.NewReader(whole), int64(cut))
		if err != nil {
			t.Fatalf("cut at %d of %d: %v", cut, len(whole), err)
		}
		var events, last uint64
		for _, f := range full.frames {
			if f.offset+int64(f.length) <= int64(cut) {
				last = max(last, f.last)
				events += uint64(f.events)
			}
		}
		some := logOf(t, r)
		if !isPrefix(some, all) || r.Events() != events || len(some) < int(events) {
			t.Errorf("cut at %d of %d: %d of %d inputs, %d events, want %d", cut, len(whole), len(some), len(all), r.Events(), events)
		}
		if last > 0 && r.End() != last {
			t.Errorf("cut at %d: the end is at %d, want %d", cut, r.End(), last)
		}
		if w := r.Warnings(); r.Ended() || len(w) != 1 || !strings.HasPrefix(w[0], "the capture is incomplete (still being written, its disk was full, or vramprof was killed): it ends at ") {
			t.Errorf("cut at %d: warnings %q", cut, w)
		}
		if s, err := r.Snapshot(math.MaxUint64); err != nil || s.End != r.End() || !slices.Contains(s.Warnings, r.Warnings()[0]) {
			t.Errorf("cut at %d: snapshot as of %d, want %d: %v", cut, s.End, r.End(), err)
		}
	}
}

// TestFullDiskEndsTheCapture checks that what was written stays valid, and that the end names the
// reason.
func TestFullDiskEndsTheCapture(t *testing.T) {
	whole, all := recorded(t)
	rng := rand.New(rand.NewPCG(8, 8))
	for range 20 {
		file := memory{limit: 300 + rng.IntN(len(whole)/2)} // on a busy machine, captures of the same events differ in length
		_, err := record(t, 1, 6_000, &file)
		if !errors.Is(err, errFull) || !strings.HasPrefix(err.Error(), "the capture ends at ") {
			t.Fatalf("%d bytes: the error is %v", file.limit, err)
		}
		r := file.read(t)
		some := logOf(t, r)
		if !isPrefix(some, all) || r.Ended() || len(r.Warnings()) != 1 {
			t.Errorf("%d bytes: %d of %d inputs, warnings %q", file.limit, len(some), len(all), r.Warnings())
		}
		if n := len(r.frames); n > 0 && r.frames[n-1].offset+int64(r.frames[n-1].length) != int64(len(file.b)) {
			t.Errorf("%d bytes: half a frame was left", file.limit)
		}
	}
}

func TestFullDiskIsReportedAtOnce(t *testing.T) {
	told := make(chan error, 9)
	w, err := NewWriter(&memory{limit: 200}, Options{Interval: time.Millisecond, OnError: func(err error) { told <- err }})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		w.Apply(&ledger.Event{Op: ledger.Alloc, Time: monotonic(), Address: rand.Uint64(), Stack: uint64(i)})
	}
	select {
	case err := <-told:
		if !errors.Is(err, errFull) {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("Failed was not called")
	}
	if err := w.End(nil); !errors.Is(err, errFull) || len(told) != 0 {
		t.Errorf("%v, Failed called %d more times", err, len(told))
	}
}

// slow is a disk that hangs until released.
type slow struct {
	memory
	release chan struct{}
}

func (s *slow) WriteAt(b []byte, offset int64) (int, error) {
	if offset > 0 {
		<-s.release
	}
	return s.memory.WriteAt(b, offset)
}

// TestStalledDiskDoesNotBlock checks that memory is bounded and that dropped events are counted.
func TestStalledDiskDoesNotBlock(t *testing.T) {
	file := &slow{release: make(chan struct{})}
	w, err := NewWriter(file, Options{Interval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	const events = batchEvents * (maxQueue + 20)
	for i := range uint64(events) {
		w.Apply(&ledger.Event{Op: ledger.Alloc, Time: 1e15 + i, Address: i})
	}
	close(file.release)
	err = w.End(nil)
	r := file.read(t)
	var l log
	if playErr := r.Play(math.MaxUint64, &l); playErr != nil {
		t.Fatal(playErr)
	}
	lost := events - len(l.lines)
	if lost < batchEvents*10 || err == nil || err.Error() != fmt.Sprintf("the capture lacks %d events (the disk was too slow)", lost) {
		t.Errorf("%d events lost, %v", lost, err)
	}
	if w := r.Warnings(); len(w) != 2 || !strings.Contains(w[0], fmt.Sprintf("%d events: the disk was too slow", lost)) {
		t.Errorf("warnings %q", w)
	}
}

// TestDamageInTheMiddleLosesOneFrame checks that the warning names the missing time.
func TestDamageInTheMiddleLosesOneFrame(t *testing.T) {
	whole, all := recorded(t)
	full, err := NewReader(bytes.NewReader(whole), int64(len(whole)))
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range full.frames {
		for name, at := range map[string]int64{"header": f.offset - frameHeader + 13, "marker": f.offset - frameHeader, "payload": f.offset + int64(f.length)/2} {
			if name == "payload" && f.length == 0 {
				continue
			}
			b := bytes.Clone(whole)
			b[at] ^= 0x10
			r, err := NewReader(bytes.NewReader(b), int64(len(b)))
			if err != nil {
				t.Fatalf("frame %d, %s: %v", i, name, err)
			}
			lost := len(all) - len(logOf(t, r))
			if most := int(f.events) + 200; f.kind == inputsFrame && (lost < int(f.events) || lost > most) || f.kind != inputsFrame && lost != 0 {
				t.Errorf("frame %d of kind %d with %d events, %s: %d inputs lost", i, f.kind, f.events, name, lost)
			}
			for id := range uint64(10) {
				r.Stack(id)
			}
			w := strings.Join(r.Warnings(), "\n")
			if f.kind == endFrame && name != "payload" && !strings.Contains(w, "is incomplete") || f.kind != endFrame && !strings.Contains(w, "the capture is damaged: ") {
				t.Errorf("frame %d of kind %d, %s: warnings %q", i, f.kind, name, w)
			}
		}
	}
}

// TestPlayerContinuesWhereItStopped checks that playing in steps delivers everything once, in order
// of time.
// TestStopEndsPlaying: at the next frame, with the error that was given, and for good.
func TestStopEndsPlaying(t *testing.T) {
	whole, all := recorded(t)
	r, err := NewReader(bytes.NewReader(whole), int64(len(whole)))
	if err != nil {
		t.Fatal(err)
	}
	var l log
	p, why := r.Player(), errors.New("the client is gone")
	if err := p.PlayTo(r.Begin(), &l); err != nil {
		t.Fatal(err)
	}
	r.Stop(why)
	if err := p.PlayTo(r.End(), &l); !errors.Is(err, why) || len(l.lines) == len(all) {
		t.Errorf("%d of %d inputs, %v", len(l.lines), len(all), err)
	}
	if _, err := r.Snapshot(r.End()); !errors.Is(err, why) {
		t.Errorf("a snapshot: %v", err)
	}
}

func TestPlayerContinuesWhereItStopped(t *testing.T) {
	whole, all := recorded(t)
	r, err := NewReader(bytes.NewReader(whole), int64(len(whole)))
	if err != nil {
		t.Fatal(err)
	}
	var l log
	p := r.Player()
	for at := r.Begin() - 1e9; at < r.End(); at += 777_777_777 {
		if err := p.PlayTo(at, &l); err != nil {
			t.Fatal(err)
		}
		var other log
		if err := r.Play(at, &other); err != nil {
			t.Fatal(err)
		}
		for _, events := range []bool{true, false} {
			steps := l.some(events)
			if !slices.Equal(steps, other.some(events)) || !isPrefix(steps, (&log{all}).some(events)) {
				t.Fatalf("at %d: %d inputs step by step, %d at once", at, len(l.lines), len(other.lines))
			}
		}
	}
	if err := p.PlayTo(math.MaxUint64, &l); err != nil || len(l.lines) != len(all) {
		t.Errorf("%d inputs in steps, %d at once: %v", len(l.lines), len(all), err)
	}
}

// some returns the events, or everything else: an event may be older than an input before it, and
// is told first if a step ends in between.
func (l *log) some(events bool) (list []string) {
	for _, line := range l.lines {
		if strings.HasPrefix(line, "event ") == events {
			list = append(list, line)
		}
	}
	return list
}

// TestEventOlderThanAnInputBeforeItCountsAtItsOwnTime: events wait in the ring while NVML's
// readings and warnings are written.
func TestEventOlderThanAnInputBeforeItCountsAtItsOwnTime(t *testing.T) {
	var file memory
	c := &clock{now: 10e9}
	w, err := NewWriter(&file, Options{Host: "host", Tool: "vramprof test", Clock: c.read})
	if err != nil {
		t.Fatal(err)
	}
	alloc := func(time uint64) {
		w.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: 7, Time: time, Address: time, Size: 1, API: "cudaMalloc"})
	}
	w.Tell(ledger.Begin{Time: 10e9})
	alloc(11e9)
	c.set(12e9 + 5e6)
	w.Tell(ledger.Warning{Text: "later than the event behind it"})
	alloc(12e9)
	alloc(13e9)
	if err := w.End(nil); err != nil {
		t.Fatal(err)
	}
	var l log
	p := file.read(t).Player()
	for _, step := range []struct {
		to             uint64
		events, others int
	}{{11e9, 1, 1}, {12e9, 2, 1}, {12e9 + 6e6, 2, 2}, {13e9, 3, 2}} {
		if err := p.PlayTo(step.to, &l); err != nil {
			t.Fatal(err)
		}
		if events, others := len(l.some(true)), len(l.some(false)); events != step.events || others != step.others {
			t.Errorf("up to %v: %d events and %d other inputs, want %d and %d", time.Duration(step.to), events, others, step.events, step.others)
		}
	}
}

func TestOtherFilesAndVersionsAreRejected(t *testing.T) {
	headOf := func(written uint32) []byte {
		b, err := head(&wire.Head{Tool: []byte("vramprof 9.9\x1b[31m")})
		if err != nil {
			t.Fatal(err)
		}
		binary.LittleEndian.PutUint32(b[len(magic):], written)
		return binary.LittleEndian.AppendUint32(b[:len(b)-4], checksum(b[:len(b)-4]))
	}
	damaged := headOf(version)
	damaged[len(damaged)-6] ^= 1
	for name, x := range map[string]struct {
		b    []byte
		want string
	}{
		"empty":     {nil, "it is not a capture of vramprof"},
		"text":      {[]byte("hello, world\n"), "it is not a capture of vramprof"},
		"pprof":     {[]byte("\x1f\x8b\x08\x00"), "it is not a capture of vramprof"},
		"cut":       {headOf(version)[:12], "it ends within its header: nothing was captured"},
		"damaged":   {damaged, "its header is damaged: nothing can be read"},
		"newer":     {headOf(version + 1), "it has format version 2, from a later vramprof (vramprof 9.9[31m): this one reads version 1"},
		"older":     {headOf(0), "it has format version 0, from an earlier vramprof (vramprof 9.9[31m): this one reads version 1"},
		"nonsense":  {headOf(1 << 30), "it has format version 1073741824, so it is damaged or from a later vramprof (this one reads version 1)"},
		"converted": {[]byte(strings.ReplaceAll(string(headOf(version)), "\r\n", "\n")), "it is not a capture of vramprof"},
	} {
		path := filepath.Join(t.TempDir(), "x.vram")
		if err := os.WriteFile(path, x.b, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(path)
		if err == nil || err.Error() != "read "+path+": "+x.want {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
		if errors.Is(err, ErrNotCapture) != strings.HasPrefix(x.want, "it is not a capture") {
			t.Errorf("%s: ErrNotCapture or not: %v", name, err)
		}
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(fifo); err == nil || !strings.Contains(err.Error(), "it is not a regular file") {
		t.Errorf("a FIFO: %v", err)
	}
}

// TestFileContainsWhatIsOlderThanASecond, however idle the machine is.
func TestFileContainsWhatIsOlderThanASecond(t *testing.T) {
	file := &memory{}
	w, err := NewWriter(file, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.End(nil)
	w.Tell(ledger.Begin{Time: monotonic()})
	begin := monotonic()
	w.Apply(&ledger.Event{Op: ledger.Alloc, Time: begin, Address: 1})
	for len(logOf(t, file.read(t))) < 2 {
		if monotonic() > begin+10e9 {
			t.Fatal("the event is not in the file after 10 s")
		}
		time.Sleep(10 * time.Millisecond)
	}
	took := time.Duration(monotonic() - begin)
	time.Sleep(2 * time.Second)
	if behind := monotonic() - file.read(t).End(); took > time.Second || behind > 1e9 {
		t.Logf("the event was written after %v, the end is %v late", took, time.Duration(behind))
		if took > 3*time.Second || behind > 3e9 { // a busy machine
			t.Fail()
		}
	}
}
