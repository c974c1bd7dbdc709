// SPDX-License-Identifier: Apache-2.0

package oomrecord

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/oom"
	"github.com/vramprof/vramprof/tracer/oom/oomevent"
	"github.com/vramprof/vramprof/tracer/ratelimit"
)

// stream can be read while it is written.
type stream struct {
	mu   sync.Mutex
	text []byte
}

func (s *stream) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = append(s.text, text...)
	return len(text), nil
}

func (s *stream) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.text)
}

func TestAFloodOfOOMsWritesTenRecordsAMinuteOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stderr stream
		var written []uint32
		busy := false
		r := New(&stderr, func(o oom.Error) (string, error) {
			if busy {
				t.Error("two at a time")
			}
			busy = true
			time.Sleep(3 * time.Second)
			busy = false
			written = append(written, o.PID)
			return fmt.Sprintf("dir/%d.txt", o.PID), nil
		})
		begin := time.Now()
		limit := ratelimit.New(oom.Records)
		take := func(pid uint32, size uint64) {
			r.Add(oom.Error{Event: oomevent.Event{PID: pid, Size: size}, User: pid, Record: limit.Allow(time.Now(), pid, pid)})
		}
		for i := range uint32(25) {
			take(i, 0)
		}
		if time.Since(begin) != 0 {
			t.Error("the caller had to wait")
		}
		time.Sleep(59 * time.Second)
		take(100, 0)
		time.Sleep(time.Second)
		take(200, 2<<30)
		warnings := r.End()
		if want := []uint32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 200}; !slices.Equal(written, want) {
			t.Errorf("written: %v, want %v", written, want)
		}
		if n := len(warnings); n != 28 || warnings[n-1] != "16 further out-of-memory errors were not recorded" ||
			!slices.Contains(warnings, "process 0 ran out of memory once: 1 recorded") || !slices.Contains(warnings, "process 100 ran out of memory once: 0 recorded") {
			t.Errorf("warnings %q", warnings)
		}
		r.Add(oom.Error{Event: oomevent.Event{PID: 300}, Record: true}) // too late, and harmless
		if again := r.End(); again != nil {
			t.Errorf("said twice: %q", again)
		}
		for text, n := range map[string]int{
			"vramprof: process 200 ran out of memory on cuda:0 (wanted 2.00 GiB): wrote dir/200.txt and .pb.gz\n":                              1,
			"vramprof: too many out-of-memory errors: at most 3 per minute and process, 10 in total, are recorded; further ones are counted\n": 1,
			"vramprof: 16 further out-of-memory errors were not recorded\n":                                                                    1,
			"\n": 13,
		} {
			if got := strings.Count(stderr.String(), text); got != n {
				t.Errorf("%d times %q, want %d, in\n%s", got, text, n, stderr.String())
			}
		}
	})
}

// TestAFloodOfOOMsLeavesTheRecordOfAnother: one process runs out of memory ten times per second,
// another one once.
func TestAFloodOfOOMsLeavesTheRecordOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stderr stream
		written := map[uint32]int{}
		r := New(&stderr, func(o oom.Error) (string, error) {
			written[o.PID]++
			return "x.txt", nil
		})
		limit := ratelimit.New(oom.Records)
		for i := range 300 {
			r.Add(oom.Error{Event: oomevent.Event{PID: 7, Comm: "flood"}, User: 1001, Record: limit.Allow(time.Now(), 7, 1001)})
			if i == 250 {
				r.Add(oom.Error{Event: oomevent.Event{PID: 8, Comm: "honest"}, User: 1002, Record: limit.Allow(time.Now(), 8, 1002)})
			}
			time.Sleep(100 * time.Millisecond)
		}
		warnings := r.End()
		if written[7] != 3 || written[8] != 1 {
			t.Errorf("records by process: %v, want 3 of the flood and that of the honest job", written)
		}
		want := []string{"process 7 (flood) ran out of memory 300 times: 3 recorded", "process 8 (honest) ran out of memory once: 1 recorded", "297 further out-of-memory errors were not recorded"}
		if !slices.Equal(warnings, want) {
			t.Errorf("warnings %q, want %q", warnings, want)
		}
	})
}

func TestWithoutOOMsNothingIsSaid(t *testing.T) {
	var none *oom.Recorder
	var stderr stream
	if w := append(none.End(), New(&stderr, nil).End()...); len(w) != 0 || stderr.String() != "" {
		t.Errorf("%q, %q", w, stderr.String())
	}
}

func TestAnOOMThatCannotBeRecordedIsALineAndNoMore(t *testing.T) {
	for want, write := range map[string]func(oom.Error) (string, error){
		"vramprof: process 1 ran out of memory on cuda:0 (wanted 0 B): disk full\n":                   func(oom.Error) (string, error) { return "", errors.New("disk full") },
		"vramprof: process 1 ran out of memory on cuda:0 (wanted 0 B): wrote a.txt, but: disk full\n": func(oom.Error) (string, error) { return "a.txt", errors.New("disk full") },
	} {
		var stderr stream
		r := New(&stderr, write)
		r.Add(oom.Error{Event: oomevent.Event{PID: 1}, Record: true})
		r.End()
		if stderr.String() != want {
			t.Errorf("got %q, want %q", stderr.String(), want)
		}
	}
}

type fakeNVML struct{ hangs bool }

func (f fakeNVML) GPUs(context.Context) ([]ledger.GPU, error) {
	return []ledger.GPU{{Index: 1, UUID: "GPU-a", Name: "H100", Total: 80 << 30, Used: 79 << 30}}, nil
}

func (f fakeNVML) Usage(ctx context.Context) ([]ledger.Usage, error) {
	if f.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return []ledger.Usage{{PID: 42, UUID: "GPU-a", Bytes: 60 << 30}, {PID: uint32(os.Getpid()), UUID: "GPU-a", Bytes: 19 << 30}}, nil
}

func (fakeNVML) GPUsByMinor([]uint32, []ledger.GPU) ([]ledger.GPU, bool) { return nil, true }
func (f fakeNVML) ResolveOrdinals([]string, []ledger.GPU) []string       { return nil }
func (fakeNVML) Suspend(context.Context) error                           { return nil }

// lateStacks returns the stack only from the third call on.
type lateStacks struct{ asked int }

func (s *lateStacks) Stack(uint64) []callstack.Frame {
	if s.asked++; s.asked < 3 {
		return nil
	}
	return []callstack.Frame{{Function: "step", File: "/home/ada/train.py", Line: 42, Python: true}}
}

func books(books *ledger.Snapshot) *ledger.Snapshot {
	if books != nil {
		return books
	}
	return &ledger.Snapshot{Begin: 1, End: 1e9, Processes: []ledger.Process{{PID: 42, Comm: "python3", Devices: []string{"GPU-a"}}}}
}

func TestRecordOfAnOOMHasNVMLNamesAndTheStack(t *testing.T) {
	source := Source{NVML: fakeNVML{}, Snapshot: books, Stacks: &lateStacks{}}
	text, content, err := source.Content(oom.Error{Event: oomevent.Event{PID: 42, Comm: "python3", Time: 5e8, Stack: 7, API: "cudaMalloc", Size: 4 << 30}})
	if err != nil {
		t.Fatal(err)
	}
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"python3 [42] ran out of memory on cuda:0 (wanted 4.00 GiB)\n", "The GPU is full: ", "/home/ada/train.py:42 step\n",
		"GPU 1: H100, a, 1.00 GiB of 80.0 GiB free\n", fmt.Sprintf("%s [%d]", strings.TrimSpace(string(comm)), os.Getpid()), "19.0 GiB\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("want %q in\n%s", want, text)
		}
	}
	if _, err := profile.ParseData(content); err != nil {
		t.Error(err)
	}
}

func TestRecordOfAnOOMIsOfItsOwnBooks(t *testing.T) {
	source := Source{Snapshot: books, Stacks: &lateStacks{}}
	text, _, err := source.Content(oom.Error{Event: oomevent.Event{PID: 42, API: "cudaMalloc"}, Books: &ledger.Snapshot{Host: "then"}})
	if err != nil || !strings.Contains(string(text), " on then, ") {
		t.Errorf("%v in\n%s", err, text)
	}
}

func TestRecordOfAnOOMDoesNotWaitForADriverThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		source := Source{NVML: fakeNVML{hangs: true}, Snapshot: books, Stacks: &lateStacks{asked: -1000}}
		text, _, err := source.Content(oom.Error{Event: oomevent.Event{PID: 42, Time: 5e8, Stack: 7, API: "cudaMalloc", Size: 4 << 30}})
		if err != nil || !strings.Contains(string(text), "NVML gave no reading") || !strings.Contains(string(text), "[no stack trace: it was lost, or not kept]") {
			t.Errorf("%v in\n%s", err, text)
		}
		if waited := time.Since(begin); waited > nvmlWait+stackWait {
			t.Errorf("waited %v", waited)
		}
	})
}

func TestAPanicInARecordIsAnError(t *testing.T) {
	source := Source{Snapshot: func(*ledger.Snapshot) *ledger.Snapshot { panic("no books") }}
	if _, _, err := source.Content(oom.Error{Event: oomevent.Event{}}); err == nil || !strings.Contains(err.Error(), "no books") {
		t.Errorf("got %v", err)
	}
}
