// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func torchFile(t testing.TB, c *Collector, at uint64) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Torch(&b, c, snapshot(c, at), testStacks()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// text returns a snapshot in a form for golden files.
func (v *viewed) text() string {
	var b strings.Builder
	for _, s := range v.segments {
		fmt.Fprintf(&b, "device %d %x +%d stream %d %s\n", s.device, s.address, s.size, s.stream, strings.Join(s.frames, ";"))
		for _, x := range s.blocks {
			state := "free"
			if x.active {
				state = "active"
			}
			fmt.Fprintf(&b, "  %x +%d %s %s\n", x.address, x.size, state, strings.Join(x.frames, ";"))
		}
	}
	for device, trace := range v.traces {
		for _, e := range trace {
			if e["action"] == "oom" {
				fmt.Fprintf(&b, "%d %v %d of %d free", device, e["action"], e["size"], e["device_free"])
			} else {
				fmt.Fprintf(&b, "%d %v %x +%d stream %d", device, e["action"], e["addr"], e["size"], e["stream"])
			}
			fmt.Fprintf(&b, " at %d %s\n", e["time_us"], strings.Join(names(e["frames"]), ";"))
		}
	}
	return b.String()
}

func TestTorchSnapshot(t *testing.T) {
	for name, o := range map[string]CollectorOptions{"torch.txt": {}, "newest.txt": {Events: 3}} {
		c := play(training(false), begin+10*second, o)
		file := torchFile(t, c, begin+10*second)
		if again := torchFile(t, c, begin+10*second); !bytes.Equal(file, again) {
			t.Error("the same input gives other bytes")
		}
		v := view(t, file)
		if err := v.replay(); err != nil {
			t.Error(err)
		}
		reporttest.Golden(t, name, []byte(v.text()))
		// With memory from before the attach, the segments of each GPU add up to what NVML reports.
		for _, p := range snapshot(c, begin+10*second).Parts() {
			var sum int64
			for _, s := range v.segments {
				if s.device == int64(p.Device) {
					sum += s.size
				}
			}
			if usage := []int64{735, 365}[p.Device] * int64(mib); sum != usage {
				t.Errorf("segments of device %d have %d bytes, NVML reports %d", p.Device, sum, usage)
			}
		}
	}
}

func TestTorchWritesOneProcess(t *testing.T) {
	c := play(training(true), begin+10*second, CollectorOptions{})
	err := Torch(&bytes.Buffer{}, c, snapshot(c, begin+10*second), testStacks())
	if err == nil || !strings.Contains(err.Error(), "4242, 5151") {
		t.Errorf("the error is %v, and does not name the processes", err)
	}
	for pid, want := range map[uint32]string{4242: "", 5151: "", 99: "the session has nothing of process 99"} {
		c := play(training(true), begin+10*second, CollectorOptions{PID: pid})
		var b bytes.Buffer
		err := Torch(&b, c, snapshot(c, begin+10*second), testStacks())
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("of %d the error is %v, not %q", pid, err, want)
		}
		if err == nil {
			v := view(t, b.Bytes())
			if err := v.replay(); err != nil || v.about["pid"] != int64(pid) {
				t.Errorf("of %d: %v, pid %v", pid, err, v.about["pid"])
			}
		}
	}
	c = NewCollector(ledger.New(ledger.Options{}), CollectorOptions{})
	if err := Torch(&bytes.Buffer{}, c, snapshot(c, 0), testStacks()); err == nil {
		t.Error("a snapshot of nothing was written")
	}
}

// chaos makes events as of a program and of a tracer that loses some of them. It uses few
// addresses, so that many collide.
type chaos struct {
	*rand.Rand
}

func (c *chaos) event(time uint64) ledger.Event {
	e := ledger.Event{
		PID: 4242, TID: uint32(c.IntN(3)), Time: time, Device: int32(c.IntN(4)) - 1, Stack: uint64(c.IntN(5)), API: []string{"cudaMalloc", "x"}[c.IntN(2)],
		Context: uint64(c.IntN(3)), Address: mib * uint64(1+c.IntN(60)) / 2, Size: mib * uint64(1+c.IntN(16)) / 2, Handle: uint64(1 + c.IntN(5)),
	}
	if e.Device > 1 {
		e.Device = 0
	}
	switch c.IntN(15) {
	case 0, 1, 2:
		e.Op, e.Kind = ledger.Alloc, []ledger.Kind{ledger.Device, ledger.Managed, ledger.Async, ledger.Pinned, ledger.Imported}[c.IntN(5)]
	case 3:
		e.Op, e.Kind, e.Space, e.Address = ledger.Alloc, ledger.VMM, ledger.Physical, e.Handle
	case 4:
		e.Op = ledger.Map
	case 5:
		e.Op = ledger.Unmap
	case 6:
		e.Op, e.Space, e.Address = ledger.Free, ledger.Physical, e.Handle
	case 7, 8, 9:
		e.Op, e.Kind, e.Space = ledger.Alloc, ledger.Tensor, ledger.Blocks
	case 10:
		e.Op, e.Kind, e.Space = ledger.Free, ledger.Tensor, ledger.Blocks
	case 11, 12:
		e.Op = ledger.Free
	case 13:
		e.Op, e.Kind, e.Space = []ledger.Op{ledger.Alloc, ledger.Free}[c.IntN(2)], ledger.Array, ledger.Arrays
	case 14:
		e.Op = []ledger.Op{
			ledger.FreeFailed, ledger.Retain, ledger.AllocFailed, ledger.ContextRetain, ledger.ContextRelease, ledger.ContextReset,
			ledger.ContextDestroy, ledger.FreeFailed, ledger.Retain,
		}[c.IntN(9)]
		e.Kind, e.Result = ledger.Device, int32(c.IntN(4))
		if e.Op == ledger.FreeFailed && c.IntN(2) == 0 {
			e.Address = 0
		}
	}
	if c.IntN(200) == 0 {
		e.Address, e.Size = c.Uint64(), c.Uint64()
	}
	if c.IntN(2000) == 0 {
		e.Op = []ledger.Op{ledger.Exec, ledger.Exit}[c.IntN(2)]
	}
	return e
}

// Whatever the events are, the state view can apply each action: no block is outside of a segment,
// and each ended segment exists.
func TestTorchSnapshotsCanBeGoneThroughWhateverCame(t *testing.T) {
	for seed := range uint64(500) {
		random := &chaos{Rand: rand.New(rand.NewPCG(seed, 1))}
		c := NewCollector(ledger.New(ledger.Options{Begin: begin}), CollectorOptions{Events: 1 + random.IntN(400)})
		n := 1 + random.IntN(1000)
		for i := range n {
			e := random.event(begin + uint64(i)*1000)
			c.Apply(&e)
			if random.IntN(100) == 0 {
				var list []ledger.Block
				for range random.IntN(20) {
					list = append(list, ledger.Block{Address: mib * uint64(random.IntN(60)) / 2, Size: mib / 2, Device: int32(random.IntN(3) - 1)})
				}
				c.Tell(ledger.BlockList{PID: 4242, Blocks: list})
			}
		}
		if len(c.using) == 0 {
			continue
		}
		v := view(t, torchFile(t, c, begin+uint64(n)*1000))
		if err := v.replay(); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, v.text())
		}
	}
}

// Driver memory is that of the ledger, however it was allocated and freed.
func TestTorchSegmentsAddUpToTheLedger(t *testing.T) {
	var compared int
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 2))
		c := NewCollector(ledger.New(ledger.Options{Begin: begin}), CollectorOptions{})
		live, time := map[uint64]bool{}, begin
		for range 200 {
			time += second
			at := uint64(1+random.IntN(30)) << 30
			e := ledger.Event{PID: 7, TID: 7, Time: time, Address: at, Size: uint64(1+random.IntN(100)) * mib, Stack: segmentStack, API: "cudaMalloc"}
			kinds := []ledger.Kind{ledger.Device, ledger.Managed, ledger.Async, ledger.VMM, ledger.Array}
			e.Kind = kinds[at>>30%5]
			switch {
			case e.Kind == ledger.VMM:
				e.Space = ledger.Physical
			case e.Kind == ledger.Array:
				e.Space = ledger.Arrays
			}
			e.Op = ledger.Alloc
			if live[at] {
				e.Op, e.Size = ledger.Free, 0
			}
			live[at] = !live[at]
			c.Apply(&e)
			if e.Kind == ledger.VMM && e.Op == ledger.Alloc && random.IntN(2) == 0 {
				c.Apply(&ledger.Event{Op: ledger.Map, PID: 7, TID: 7, Time: time, Address: at << 8, Size: e.Size, Handle: at})
			}
			if random.IntN(10) == 0 {
				c.Apply(&ledger.Event{Op: ledger.Unmap, PID: 7, TID: 7, Time: time, Address: at << 8, Size: 100 * mib})
			}
			if random.IntN(60) == 0 {
				c.Apply(&ledger.Event{Op: ledger.FreeFailed, PID: 7, TID: 7, Time: time, Address: at, Result: 1})
			}
		}
		var want, got int64
		s := snapshot(c, time)
		for i := range s.Sites {
			if s.Sites[i].Kind != ledger.Managed { // it counts for no GPU
				want += int64(s.Sites[i].LiveBytes)
			}
		}
		for _, x := range view(t, torchFile(t, c, time)).segments {
			got += x.size
		}
		if got != want {
			t.Fatalf("seed %d: segments have %d bytes, the books %d", seed, got, want)
		}
		if want > 0 {
			compared++
		}
	}
	if compared < 100 {
		t.Errorf("only %d ledgers had something", compared)
	}
}

func TestTorchMappedPagesSideBySideAreOneSegment(t *testing.T) {
	c := NewCollector(ledger.New(ledger.Options{Begin: begin}), CollectorOptions{})
	page := func(op ledger.Op, i uint64) {
		at := begin + i*second
		if op == ledger.Map {
			c.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.VMM, Space: ledger.Physical, PID: 7, Time: at, Address: 100 + i, Size: 2 * mib, Stack: segmentStack, API: "cuMemCreate"})
		}
		c.Apply(&ledger.Event{Op: op, PID: 7, Time: at, Address: 1<<40 + i*2*mib, Size: 2 * mib, Handle: 100 + i})
	}
	for i := range uint64(4) {
		page(ledger.Map, i)
	}
	c.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Tensor, Space: ledger.Blocks, PID: 7, Time: begin + 5*second, Address: 1<<40 + mib, Size: 6 * mib, Stack: trainStack})
	v := view(t, torchFile(t, c, begin+6*second))
	if len(v.segments) != 1 || v.segments[0].size != int64(8*mib) || len(v.segments[0].blocks) != 3 || v.segments[0].stream != streamMapped {
		t.Errorf("segments:\n%s", v.text())
	}
	if err := v.replay(); err != nil {
		t.Error(err)
	}
	if i := slices.IndexFunc(v.traces[0], func(e map[string]any) bool { return e["action"] == "segment_map" }); i < 0 {
		t.Errorf("nothing is mapped:\n%s", v.text())
	}
	page(ledger.Unmap, 0)
	v = view(t, torchFile(t, c, begin+7*second))
	if trace := v.traces[0]; trace[len(trace)-1]["action"] != "segment_unmap" || v.segments[0].size != int64(6*mib) {
		t.Errorf("no page is unmapped:\n%s", v.text())
	}
}

type discard struct{ n int }

func (d *discard) Write(b []byte) (int, error) {
	d.n += len(b)
	return len(b), nil
}

func TestTorchStreamsAMillionEvents(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second")
	}
	const events = 1_000_000
	c := NewCollector(ledger.New(ledger.Options{Begin: begin}), CollectorOptions{Events: events})
	c.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: 7, Time: begin, Address: 1 << 40, Size: 1 << 36, Stack: segmentStack, API: "cudaMalloc"})
	for i := range uint64(events) {
		e := ledger.Event{Op: ledger.Alloc, Kind: ledger.Tensor, Space: ledger.Blocks, PID: 7, Time: begin + i*1000, Address: 1<<40 + i%50_000/2*4096, Size: 4096, Stack: trainStack}
		if i%2 == 1 {
			e.Op = ledger.Free
		}
		c.Apply(&e)
	}
	s := snapshot(c, begin+1001*second)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var d discard
	if err := Torch(&d, c, s, testStacks()); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if d.n < 30*events || c.spaces[7].trace.dropped != 1 {
		t.Errorf("%d bytes, %d events were dropped", d.n, c.spaces[7].trace.dropped)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20 {
		t.Errorf("writing took %d bytes of memory", took)
	}
}
