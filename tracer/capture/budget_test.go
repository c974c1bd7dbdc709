// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/export"
	"github.com/vramprof/vramprof/report/html"
	"github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/report/profile"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/report/timeline"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// uses are the ways in which commands use a capture.
var uses = map[string]func(r *Reader) error{
	"snapshot": func(r *Reader) error { _, err := r.Snapshot(math.MaxUint64); return err },
	"summary": func(r *Reader) error {
		s, err := r.Snapshot(math.MaxUint64)
		if err != nil {
			return err
		}
		return text.WriteSummary(io.Discard, s, r, report.Options{Top: 5}, text.Screen{Width: 100})
	},
	"tree": func(r *Reader) error {
		s, err := r.Snapshot(math.MaxUint64)
		if err != nil {
			return err
		}
		return text.WriteTree(io.Discard, s, r, report.Options{Top: 10}, text.Screen{Width: 100})
	},
	"table": func(r *Reader) error {
		s, err := r.Snapshot(math.MaxUint64)
		if err != nil {
			return err
		}
		return text.WriteTable(io.Discard, s, r, report.Options{Top: 10}, text.Screen{Width: 100})
	},
	"timeline": func(r *Reader) error {
		s, t, sizes, err := timelineOf(r)
		if err != nil {
			return err
		}
		o, screen := report.Options{Top: 10}, text.Screen{Width: 100}
		return errors.Join(text.WriteStats(io.Discard, s, sizes, r, o, screen), text.WriteTimeline(io.Discard, s, t, r, o, screen),
			json.WriteView(io.Discard, json.View{Name: "timeline", Stacks: r, Snapshot: s, Timeline: t, Sizes: sizes}, o))
	},
	"page": func(r *Reader) error {
		s, t, _, err := timelineOf(r)
		if err != nil {
			return err
		}
		found := report.Judge(s, r)
		return html.Write(io.Discard, html.Input{
			Snapshot: s, Stacks: r, Timeline: t, Verdicts: found.Sites(), Advice: found.Advice,
		})
	},
	"leaks": func(r *Reader) error {
		s, err := r.Snapshot(math.MaxUint64)
		if err != nil {
			return err
		}
		report.Judge(s, r).Leaking()
		return errors.Join(text.WriteLeaks(io.Discard, s, r, report.Options{Top: 10}, text.Screen{Width: 100}), json.WriteLeaks(io.Discard, s, r, report.Options{Top: 10}))
	},
	"profile": func(r *Reader) error {
		s, err := r.Snapshot(math.MaxUint64)
		if err != nil {
			return err
		}
		return profile.Write(io.Discard, s, r)
	},
	"difference": func(r *Reader) error {
		a, err := r.Snapshot(r.Begin() + (r.End()-r.Begin())/2)
		if err != nil {
			return err
		}
		b, err := r.Snapshot(math.MaxUint64)
		if err != nil {
			return err
		}
		return text.WriteDiff(io.Discard, profile.Diff(profile.New(a, r), profile.New(b, r)), [2]string{}, report.Options{Top: 10}, text.Screen{Width: 100})
	},
	"chrome": func(r *Reader) error {
		s, t, _, err := timelineOf(r)
		if err != nil {
			return err
		}
		return export.Chrome(io.Discard, t, s, r)
	},
	"folded": func(r *Reader) error {
		s, err := r.Snapshot(math.MaxUint64)
		if err != nil {
			return err
		}
		return export.Folded(io.Discard, s, r, export.FoldedOptions{})
	},
	"torch": func(r *Reader) error {
		l := r.NewLedger()
		c := export.NewCollector(l, export.CollectorOptions{PID: 7})
		if err := r.Play(math.MaxUint64, c); err != nil {
			return err
		}
		_ = export.Torch(io.Discard, c, r.SnapshotOf(l, r.End()), r) // there may be no such process
		return nil
	},
}

func timelineOf(r *Reader) (*ledger.Snapshot, *timeline.Timeline, *timeline.Sizes, error) {
	l := r.NewLedger()
	last, err := r.Snapshot(r.End())
	if err != nil {
		return nil, nil, nil, err
	}
	moments := timeline.Moments{Begin: r.Begin(), End: r.End(), Steps: 200, Peaks: ledger.PeakTimes(last, timeline.MaxPeaks)}
	t, sizes, err := timeline.Play(r.Player(), r.Player(), moments, l, func(at uint64) *ledger.Snapshot { return r.SnapshotOf(l, at) })
	if err != nil {
		return nil, nil, nil, err
	}
	return r.SnapshotOf(l, r.End()), t, sizes, nil
}

// cost is the CPU time and memory of some work.
type cost struct {
	time   time.Duration // CPU time
	memory uint64        // peak, minus the memory before
}

// measure runs do. It samples memory every 2 ms, garbage included.
func measure(do func()) cost {
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	runtime.GC()
	heap := func() uint64 {
		s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	before, began := heap(), processorTime()
	highest, stop := make(chan uint64), make(chan struct{})
	go func() {
		most := uint64(0)
		for tick := time.Tick(2 * time.Millisecond); ; {
			select {
			case <-tick:
				most = max(most, heap())
			case <-stop:
				highest <- max(most, heap())
				return
			}
		}
	}()
	do()
	close(stop)
	most := <-highest
	return cost{processorTime() - began, most - min(before, most)}
}

func processorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// budget returns the most that using a capture of size bytes may cost, as documented in
// SECURITY.md. A current CPU needs half of the time.
func budget(size int) cost {
	return cost{10*time.Second + time.Duration(size)*10*time.Microsecond, 512<<20 + 512*uint64(size)}
}

func (c cost) check(t *testing.T, most cost, what string) {
	t.Helper()
	if c.time > most.time || c.memory > most.memory {
		t.Errorf("%s took %v and %d MiB, at most %v and %d MiB are allowed", what, c.time, c.memory>>20, most.time, most.memory>>20)
	}
}

// use opens a capture and uses it.
func use(b []byte, what string) error {
	r, err := NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return err
	}
	defer r.Close()
	return uses[what](r)
}

var forged = flag.Int("forged", 0, "also create captures with this many of each, and use them in all ways")

// TestForgedCapturesTakeBoundedMemoryAndTime uses captures with valid checksums: a limit stops what
// would take more.
func TestForgedCapturesTakeBoundedMemoryAndTime(t *testing.T) {
	// -forged=60000 takes minutes. With 8,000, the dearest took 7 s on a quiet machine and 10.5 s
	// on a busy one, where two threads share a processor.
	sizes := map[int][]string{500: {"page", "torch"}, 3_000: {"leaks"}}
	if *forged > 0 {
		sizes = map[int][]string{*forged: slices.Sorted(maps.Keys(uses))}
	}
	for _, name := range slices.Sorted(maps.Keys(forgeries)) {
		for n, some := range sizes {
			f := newForger(t)
			forgeries[name](f, n)
			b := f.bytes()
			for _, what := range some {
				var err error
				c := measure(func() { err = use(b, what) })
				var limit *LimitError
				if err != nil && !errors.As(err, &limit) && !strings.Contains(err.Error(), "too many for a timeline") {
					t.Errorf("%s of %d %s: %v", what, n, name, err)
				}
				c.check(t, budget(len(b)), fmt.Sprintf("%s of %d %s in %d bytes", what, n, name, len(b)))
				t.Logf("%-32s %6d in %8d bytes: %-10s %6.2fs %5d MiB %v", name, n, len(b), what, c.time.Seconds(), c.memory>>20, err)
			}
		}
	}
}

// FuzzBudget bounds the cost of a small capture by its content; its frames are repeated as often as
// repeat says.
func FuzzBudget(f *testing.F) {
	for _, name := range slices.Sorted(maps.Keys(forgeries)) {
		x := newForger(f)
		forgeries[name](x, 64)
		f.Add(messagesOf(f, x.bytes()), uint8(3))
	}
	f.Fuzz(func(t *testing.T, data []byte, repeat uint8) {
		if len(data) > 64<<10 {
			return
		}
		b := rebuild(bytes.Repeat(data, 1+int(repeat&7)))
		what := slices.Sorted(maps.Keys(uses))[int(repeat>>3)%len(uses)]
		size := uint64(len(data) * (1 + int(repeat&7)))
		most := cost{time.Second + time.Duration(size)*100*time.Microsecond, 64<<20 + 2048*size}
		endless := time.AfterFunc(20*time.Second+4*most.time, func() { panic(what + " does not end") })
		defer endless.Stop()
		c := measure(func() { _ = use(b, what) })
		c.check(t, most, what)
	})
}

// TestLimitsAreNamedAndLiftedByUnlimited reaches each limit.
func TestLimitsAreNamedAndLiftedByUnlimited(t *testing.T) {
	for name, x := range map[string]struct {
		n    int
		want string
	}{
		"nothing, compressed":        {1 << 16, "bytes of decompressed frames"},
		"live allocations":           {3 << 20, "events"},
		"sites of all sorts":         {25_000, "sites of allocations"},
		"lives of one pid":           {15_000, "processes"},
		"allocators":                 {8_000, "PyTorch allocators"},
		"strays":                     {60_000, "steps of work"},
		"GPUs and processes on them": {5_000, "exceeds any real machine"},
	} {
		f := newForger(t)
		forgeries[name](f, x.n)
		b := f.bytes()
		var limit *LimitError
		if err := use(b, "snapshot"); !errors.As(err, &limit) || !strings.Contains(err.Error(), x.want) || !strings.Contains(err.Error(), "forged") {
			t.Errorf("%s: %v", name, err)
		}
		if x.want == "steps of work" || x.want == "events" {
			continue // it would take long
		}
		r, err := NewReaderWith(bytes.NewReader(b), int64(len(b)), ReadOptions{Unlimited: true})
		if err == nil {
			_, err = r.Snapshot(math.MaxUint64)
		}
		if err != nil {
			t.Errorf("%s without limits: %v", name, err)
		}
	}
}

func TestProgressCoversTheFile(t *testing.T) {
	file := written(t, generate(200_000))
	var last, calls int64
	r, err := NewReaderWith(bytes.NewReader(file.b), int64(len(file.b)), ReadOptions{Progress: func(done, size int64) {
		if size != int64(len(file.b)) || done < 0 || done > size {
			t.Errorf("%d of %d bytes of a file of %d", done, size, len(file.b))
		}
		if calls++; done < size {
			last = done
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if calls = 0; r.Play(math.MaxUint64, &log{}) != nil || calls < 5 || last < int64(len(file.b))/2 {
		t.Errorf("called %d times, up to %d of %d", calls, last, len(file.b))
	}
}
