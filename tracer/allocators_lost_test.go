// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// torchTruth is what PyTorch itself has at a point of testdata/realtorch/blocks.py.
type torchTruth struct {
	Segments []struct {
		Device  int
		Address uint64
		Size    uint64 `json:"total_size"`
		Blocks  []struct {
			Address, Size uint64
			State         string
		}
	}
	Stats []map[string]int64
}

func (j *blocksJob) truth(t *testing.T) (truth torchTruth) {
	t.Helper()
	text, err := os.ReadFile(j.file)
	if err == nil {
		err = json.Unmarshal(text, &truth)
	}
	if err != nil {
		t.Fatal(err)
	}
	return truth
}

// lines returns the live blocks and the segments.
func (x torchTruth) lines() (blocks, segments []string) {
	for _, g := range x.Segments {
		segments = append(segments, fmt.Sprintf("cuda:%d %#x %d", g.Device, g.Address, g.Size))
		for _, b := range g.Blocks {
			if b.State == "active_allocated" {
				blocks = append(blocks, fmt.Sprintf("cuda:%d %#x %d", g.Device, b.Address, b.Size))
			}
		}
	}
	slices.Sort(blocks)
	slices.Sort(segments)
	return blocks, segments
}

// bookedLive follows books by what they say began and ended.
type bookedLive struct {
	mu   sync.Mutex
	live map[string]bool
}

func (b *bookedLive) set(a *ledger.Allocation, live bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.live[fmt.Sprintf("%d %d cuda:%d %#x %d", a.PID, a.Space, a.Device, a.Address, a.Size)] = live
}

func (*bookedLive) Began(uint32, uint32)                      {}
func (b *bookedLive) Allocated(a ledger.Allocation, _ uint64) { b.set(&a, true) }
func (b *bookedLive) Freed(a ledger.Allocation, _ uint64)     { b.set(&a, false) }
func (*bookedLive) Mapped(ledger.Mapping, uint64)             {}
func (*bookedLive) Unmapped(ledger.Mapping, uint64)           {}
func (*bookedLive) Moved(ledger.Allocation)                   {}
func (*bookedLive) Unmatched(ledger.Allocation, uint64)       {}

// of returns what lives of a process on GPUs.
func (b *bookedLive) of(pid int, space ledger.Space) (list []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, live := range b.live {
		if rest, ok := strings.CutPrefix(key, fmt.Sprintf("%d %d ", pid, space)); ok && live && !strings.HasPrefix(rest, "cuda:-") {
			list = append(list, rest)
		}
	}
	slices.Sort(list)
	return list
}

// observedBooks are books that are told the inputs of a session, as a capture is.
type observedBooks struct {
	*ledger.Ledger
	bookedLive
}

// TestLostEventsAreRepairedByWalks: the buffer for events has room for few, so that many of a real
// PyTorch's are lost. When two readings have been booked, the books have each block and segment
// that PyTorch itself has, and the number of allocations and frees that came from the readings.
func TestLostEventsAreRepairedByWalks(t *testing.T) {
	m := newTorchMachine(t, 2)
	single := *m.machine
	o := &observedBooks{bookedLive: bookedLive{live: map[string]bool{}}}
	o.Ledger = ledger.New(ledger.Options{Begin: 1})
	o.Observe(&o.bookedLive)
	single.trace(func(c *Config) { c.Sample, c.entries, c.Capture = 0, map[string]uint32{"events": 4096}, o })
	late := &torchMachine{&single, m.root, false}
	j := late.blocks("")
	lost := uint64(0)
	for point := range 5 {
		j.next(t)
		truth := j.truth(t)
		wantBlocks, wantSegments := truth.lines()
		var s *ledger.Snapshot
		var blocks, segments []string
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			single.Tracer.snapshots.scanner.Last(t.Context())
			s = late.snapshot()
			blocks, segments = o.of(j.pid, ledger.Blocks), o.of(j.pid, ledger.Addresses)
			if slices.Equal(blocks, wantBlocks) && slices.Equal(segments, wantSegments) {
				break
			}
		}
		_, process := processOf(t, s, uint32(j.pid))
		lost = s.Processes[process].Lost
		if !slices.Equal(blocks, wantBlocks) {
			t.Errorf("point %d: the books have %d blocks, PyTorch %d: %v", point, len(blocks), len(wantBlocks), differ(blocks, wantBlocks))
		}
		if !slices.Equal(segments, wantSegments) {
			t.Errorf("point %d: the books have %d segments, PyTorch %d: %v", point, len(segments), len(wantSegments), differ(segments, wantSegments))
		}
		for device, stats := range truth.Stats {
			x, c := s.TensorsOn(process, int32(device)), s.CacheOn(process, int32(device))
			if x == nil || c == nil {
				t.Fatalf("point %d: cuda:%d: nothing is booked", point, device)
			}
			if x.Allocated != uint64(stats["allocated_bytes.all.current"]) || x.Reserved != uint64(stats["reserved_bytes.all.current"]) ||
				x.LiveObjects != uint64(stats["allocation.all.current"]) || x.Segments != x.Reserved || x.Older != 0 {
				t.Errorf("point %d: cuda:%d: the books have %+v, PyTorch %d of %d bytes", point, device, x, stats["allocated_bytes.all.current"], stats["reserved_bytes.all.current"])
			}
			if point > 0 && c.Repaired == 0 {
				t.Errorf("point %d: nothing is repaired", point)
			}
		}
		io.WriteString(j.in, "\n")
		t.Logf("point %d: %d events lost, %d allocations and frees repaired", point, lost, s.CacheOn(process, 0).Repaired)
	}
	if lost == 0 {
		t.Error("no event was lost")
	}
}

// differ returns what only one of two sorted lists has, at most ten of it.
func differ(a, b []string) (list []string) {
	for _, x := range a {
		if _, both := slices.BinarySearch(b, x); !both && len(list) < 10 {
			list = append(list, "only booked: "+x)
		}
	}
	for _, x := range b {
		if _, both := slices.BinarySearch(a, x); !both && len(list) < 10 {
			list = append(list, "only PyTorch: "+x)
		}
	}
	return list
}
