// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// slowly is both with events so slow that the Writer has written all but the last few.
type slowly struct {
	both
	events *uint64
}

func (s slowly) Apply(e *ledger.Event) {
	if *s.events++; *s.events%250 == 0 {
		for s.w.Stored().Events+250 < *s.events {
			time.Sleep(100 * time.Microsecond)
		}
	}
	s.both.Apply(e)
}

// checkpointed writes a random session with a checkpoint every few frames.
func checkpointed(t testing.TB, seed uint64, steps int, file *memory) {
	t.Helper()
	c := &clock{now: sessionBegin - 5e9}
	w, err := NewWriter(file, Options{Host: "host", Clock: c.read, batch: 200, step: 1})
	if err != nil {
		t.Fatal(err)
	}
	l := ledger.New(ledger.Options{Begin: c.now, Host: "host"})
	w.SetCheckpoints(func(to ledger.Books, _ int) bool { return l.Checkpoint(to, 1<<40) })
	s := session{totals: rand.New(rand.NewPCG(seed, 2)), rng: rand.New(rand.NewPCG(seed, 1)), clock: c, books: slowly{both{l, w}, new(uint64)}, stacks: fakeStacks{&atomic.Bool{}}}
	w.SetStacks(s.stacks)
	s.run(steps)
	c.set(c.read() + 1e9)
	if err := w.End(l.Snapshot(c.read(), time.Unix(1700000099, 7).UTC())); err != nil {
		t.Fatal(err)
	}
}

// TestACheckpointShowsWhatPlayingAllOfItShows: in random sessions, every figure of random moments,
// and of the last one where the file was cut off.
func TestACheckpointShowsWhatPlayingAllOfItShows(t *testing.T) {
	used := 0
	for seed := range uint64(2) {
		var file memory
		checkpointed(t, seed, 2500+4000*int(seed), &file) // processes lose their entries after 5 s
		rng := rand.New(rand.NewPCG(seed, 3))
		for cut := range 2 {
			b := file.b[:len(file.b)-rng.IntN(1+cut*len(file.b)/3)]
			with, without := readerOf(t, b), readerOf(t, b)
			without.checkpoints = checkpoints{}
			moments := []uint64{with.Begin(), 1 << 63}
			for range 5 {
				moments = append(moments, with.Begin()+rng.Uint64N(with.End()-with.Begin()))
			}
			if n := len(with.checkpoints.list); n > 0 {
				at := with.checkpoints.list[rng.IntN(n)].time
				moments = append(moments, at-1, at, at+1)
			}
			for _, at := range moments {
				if with.checkpoints.before(at) != nil {
					used++
				}
				if got, want := snapshotOf(t, with, at), snapshotOf(t, without, at); !reflect.DeepEqual(got, want) {
					t.Fatalf("seed %d, %d bytes, at %d, checkpoint %+v:\n%s", seed, len(b), at, with.checkpoints.before(at), difference(*got, *want))
				}
			}
		}
	}
	if used < 25 {
		t.Errorf("only %d moments were shown from checkpoints", used)
	}
}

func readerOf(t testing.TB, b []byte) *Reader {
	t.Helper()
	r, err := NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func snapshotOf(t testing.TB, r *Reader, at uint64) *ledger.Snapshot {
	t.Helper()
	s, err := r.Snapshot(at)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestADamagedCheckpointIsNotUsed: a flipped bit costs nothing but time, and neither does a message
// that no vramprof wrote.
func TestADamagedCheckpointIsNotUsed(t *testing.T) {
	var file memory
	checkpointed(t, 1, 1000, &file)
	r := readerOf(t, file.b)
	want, last := snapshotOf(t, r, math.MaxUint64), r.checkpoints.list[len(r.checkpoints.list)-1]
	f := r.frames[last.frames[0]]

	b := bytes.Clone(file.b)
	b[f.offset+int64(f.length)/2] ^= 1
	damaged := readerOf(t, b)
	if got := snapshotOf(t, damaged, math.MaxUint64); len(damaged.checkpoints.list) != len(r.checkpoints.list)-1 || !reflect.DeepEqual(got, want) {
		t.Errorf("%d checkpoints, of %d; %s", len(damaged.checkpoints.list), len(r.checkpoints.list), difference(*got, *want))
	}

	b = bytes.Clone(file.b)
	copy(b[f.offset:f.offset+int64(f.length)], make([]byte, f.length))
	f.sum = checksum(make([]byte, f.length))
	f.put(b[f.offset-frameHeader:])
	forged := readerOf(t, b)
	if got := snapshotOf(t, forged, math.MaxUint64); len(forged.checkpoints.list) != len(r.checkpoints.list) || !reflect.DeepEqual(got, want) {
		t.Errorf("%d checkpoints, of %d; %s", len(forged.checkpoints.list), len(r.checkpoints.list), difference(*got, *want))
	}
}

// TestNothingIsShownFromACheckpointAfterDamage: all views lack the same inputs.
func TestNothingIsShownFromACheckpointAfterDamage(t *testing.T) {
	var file memory
	checkpointed(t, 1, 2000, &file)
	r := readerOf(t, file.b)
	i := r.checkpoints.list[1].next // the first frame of inputs after the second checkpoint
	for r.frames[i].kind != inputsFrame {
		i++
	}
	file.b[r.frames[i].offset] ^= 1
	if damaged := readerOf(t, file.b); len(damaged.checkpoints.list) != 2 || len(damaged.Warnings()) != 1 {
		t.Errorf("%d checkpoints, warnings %q", len(damaged.checkpoints.list), damaged.Warnings())
	}
}

// TestAWriterThatDroppedInputsWritesNoCheckpoint: the books have what the capture lacks.
func TestAWriterThatDroppedInputsWritesNoCheckpoint(t *testing.T) {
	for _, drops := range []bool{false, true} {
		w, err := NewWriter(&memory{}, Options{Interval: time.Hour, batch: 10, step: 1})
		if err != nil {
			t.Fatal(err)
		}
		asked := 0
		w.SetCheckpoints(func(ledger.Books, int) bool { asked++; return false })
		for i := range uint64(100) {
			w.mu.Lock()
			if drops && i == 50 {
				w.lost, asked = 1, 0
			}
			w.mu.Unlock()
			w.Apply(&ledger.Event{Time: sessionBegin + i})
		}
		if err := w.End(nil); (err != nil) != drops || (asked == 0) != drops {
			t.Errorf("drops: %v, asked %d times, %v", drops, asked, err)
		}
	}
}

// difference names the fields in which two snapshots differ.
func difference(got, want ledger.Snapshot) (text string) {
	a, b := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range a.NumField() {
		x, y := a.Field(i), b.Field(i)
		if reflect.DeepEqual(x.Interface(), y.Interface()) {
			continue
		}
		text += a.Type().Field(i).Name + ":\n"
		if x.Kind() != reflect.Slice || x.Len() != y.Len() {
			text += fmt.Sprintf("%+v\nwant\n%+v\n", x, y)
			continue
		}
		for k := range x.Len() {
			if x, y := x.Index(k), y.Index(k); !reflect.DeepEqual(x.Interface(), y.Interface()) {
				text += fmt.Sprintf("%d: %+v\nwant\n%+v\n", k, x, y)
			}
		}
	}
	return text
}
