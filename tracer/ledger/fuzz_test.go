// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

// FuzzLedger reads 16 bytes for each event. Without fuzzing it runs 300 random sequences.
func FuzzLedger(f *testing.F) {
	for _, data := range randomSequences() {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		l, last := applyHostile(t, data[:min(len(data), 32<<10)], nil)
		s := l.Snapshot(last, time.Time{})
		l.AddStuck(s)
		checkBooks(t, s)
		checkStuck(t, s)
		checkLedger(t, l)
		checkParts(t, l, s)
		checkAsleep(t, l, s)
		checkObjects(t, l)
		// after all others have lost their entries
		l.Apply(&Event{Op: Exit, PID: 99, Time: 1 << 62})
		checkLedger(t, l)
	})
}

// randomSequences returns 300 inputs of applyHostile.
func randomSequences() (list [][]byte) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		data := make([]byte, 16*(1+rng.Uint64N(1500)))
		for i := range data {
			data[i] = byte(rng.Uint64())
		}
		list = append(list, data)
	}
	return list
}

// applyHostile returns books of random events, of 16 bytes each, and the time of the latest event;
// o observes the books.
func applyHostile(t *testing.T, data []byte, o Observer) (l *Ledger, last uint64) {
	t.Helper()
	l = New(Options{Begin: 100e9, MaxLive: 64})
	l.Observe(o)
	for ; len(data) >= 16; data = data[16:] {
		before := l.stats.UnmatchedFrees
		e := stepHostile(l, data)
		if e.Op == FreeFailed && l.stats.UnmatchedFrees > before {
			t.Fatalf("%+v: a free that was not there was undone", e)
		}
		last = max(last, e.Time)
	}
	return l, last
}

// stepHostile books an event of 16 bytes, and some other input before it.
func stepHostile(l *Ledger, data []byte) Event {
	v, w := binary.LittleEndian.Uint64(data), binary.LittleEndian.Uint64(data[8:])
	e := hostile(v, w)
	switch v >> 56 % 32 {
	case 0:
		l.Tell(Devices{PID: e.PID, UUIDs: []string{"A", "B"}[:v>>48%3]})
	case 1:
		l.Tell(UsageReading{Time: e.Time, Usages: []Usage{{e.PID, "A", w % 4096, w&8 != 0}, {e.PID + 1, "B", w >> 52, w&16 != 0}}[:w%3]})
	case 2:
		l.Tell(Process{PID: e.PID, Begin: e.Time})
	case 3, 4:
		l.Tell(TensorReading{Time: e.Time, Totals: []TensorTotals{hostileTotals(&e, w), hostileTotals(&e, v)}[:1+w>>60&1]})
	case 5:
		l.Tell(BlockList{PID: e.PID, Blocks: []Block{{e.Address, e.Size, e.Device, false}, {w >> 8 % 16, w >> 16, 0, false}, {v, w, int32(v), true}, {w % 16, 3, 1, false}}[:w>>60%5]})
	case 6:
		l.MarkSegments(func(stack uint64) bool { return stack == w%4 })
	case 8:
		l.Tell(UsageOpened{Time: e.Time})
	case 9:
		l.Tell(Forget{e.Time})
		moveAll(l)
	case 10:
		l.Tell(Fold{e.PID, w % 32})
	case 11, 12:
		in := Untraced{PID: uint32(w>>50%2) * e.PID, From: e.Time - min(e.Time, w%8), To: e.Time, Open: w>>40&1 != 0}
		if w>>41&1 != 0 {
			in.Stayed = []Stayed{{e.PID, e.Device, w >> 8 % 64, v >> 8 % 64}}
		}
		l.Tell(in)
	case 7:
		l.Tell(Sampling{math.Float64frombits(v), float64(w%16) / 16})
	}
	l.Apply(&e)
	return e
}

func hostileTotals(e *Event, w uint64) TensorTotals {
	x := TensorTotals{PID: e.PID, Device: e.Device, Allocated: w % 64, Reserved: w >> 6 % 128, Unbooked: w >> 20 % 8 / 7, Classes: make([]ClassTotals, w>>24%4*60)}
	for i := range x.Classes {
		x.Classes[i] = ClassTotals{w >> (i % 60) % 8, w >> (i % 50) % 64, w >> (i % 40) % 8, w >> (i % 30) % 64}
	}
	if n := len(x.Classes); n > 0 && w>>30%4 == 0 {
		x.Classes[w%uint64(n)] = ClassTotals{w, ^w, w >> 32, w >> 8}
		x.Allocated, x.Reserved = w, ^w
	}
	return x
}

// hostile returns an event whose numbers collide or are absurd.
func hostile(v, w uint64) Event {
	e := Event{
		Op: Op(v % 34), Kind: Kind(v >> 8 % 18), Space: Space(v >> 12 % 8), PID: uint32(v >> 16 % 4), TID: uint32(v >> 18 % 8),
		Device: int32(v>>21%4) - 1, Result: int32(v >> 24 % 8), Time: v >> 27 % 64 * 4e9, Stack: v >> 33 % 4,
		Context: v >> 35 % 4, Address: w % 16, Size: w >> 4 % 16, Handle: w >> 8 % 8, API: "a",
	}
	if v>>37%4 != 0 {
		e.Time = 200e9 // most at one time, so that processes live a while
	}
	if v>>39%4 == 0 {
		e.Kind, e.Space, e.Device = Tensor, Blocks, e.Device-int32(w>>17&1)
		e.Halvings = uint8(v >> 41 % 4 * (w >> 18 % 256))
		e.Told, e.Allocated, e.Reserved, e.Live = Told(w>>20%4), w>>22%128, w>>29%256, w>>37%128
		if w>>44%16 == 0 {
			e.Op = Totals
		}
		if w>>48%16 == 0 {
			e.Allocated, e.Live = ^w, w
		}
	}
	switch w >> 12 % 16 {
	case 0:
		e.Size = UnknownSize
	case 1:
		e.Size = ^(w >> 16)
	case 2:
		e.Size = 1<<48 - w>>16%2
	case 3:
		e.Address = ^(w >> 16 % 32)
	case 4:
		e.Device = int32(w >> 16)
	case 5:
		e.Kind, e.Space = Kind(w>>16), Space(w>>24)
	case 6:
		e.Time = w >> 16
	}
	return e
}

// checkBooks tests what must hold after any events.
func checkBooks(t *testing.T, s *Snapshot) {
	t.Helper()
	type sum struct{ liveObjects, liveBytes, allocObjects, allocBytes uint64 }
	type key struct {
		process int
		device  int32
		kind    Kind
	}
	sums := map[key]sum{}
	for _, x := range s.Sites {
		k := key{x.Process, x.Device, x.Kind}
		v := sums[k]
		sums[k] = sum{v.liveObjects + x.LiveObjects, v.liveBytes + x.LiveBytes, v.allocObjects + x.AllocObjects, v.allocBytes + x.AllocBytes}
		if x.LiveBytes > x.AllocBytes || x.LiveObjects > x.AllocObjects || x.AllocObjects == 0 && (x.Kind != Tensor || x.AllocBytes == 0) {
			t.Errorf("site %+v: more live than allocated", x)
		}
		if x.AllocBytes > maxSum {
			t.Errorf("site %+v: the sum has wrapped", x)
		}
		if x.History[HistoryLen-1] != x.LiveBytes {
			t.Errorf("site %+v: history does not end at the live bytes", x)
		}
		if x.Tensors > x.LiveBytes || x.Tensors > 0 && !x.Segment || x.Segment && x.Kind != Device && x.Kind != VMM {
			t.Errorf("site %+v has more tensors than bytes, or cannot be a segment", x)
		}
	}
	totals := map[key]sum{}
	for i, p := range s.Processes {
		for _, x := range p.Totals {
			totals[key{i, x.Device, x.Kind}] = sum{x.LiveObjects, x.LiveBytes, x.AllocObjects, x.AllocBytes}
			if x.PeakBytes < x.LiveBytes {
				t.Errorf("total %+v: peak below live", x)
			}
		}
	}
	if !reflect.DeepEqual(sums, totals) {
		t.Errorf("sums of sites %v, totals %v", sums, totals)
	}
	for _, x := range s.Tensors {
		k := key{x.Process, x.Device, Tensor}
		if sums[k] != (sum{x.LiveObjects, x.LiveBytes, x.AllocObjects, x.AllocBytes}) {
			t.Errorf("tensors %+v, sums of sites %v", x, sums[k])
		}
		if x.Cached > x.Segments || x.LargestFree > maxSize || x.Device < 0 && x.Older+x.OlderCached+x.Segments+x.Foreign+x.Allocated != 0 {
			t.Errorf("tensors %+v contradict themselves", x)
		}
		delete(sums, k)
	}
	for k := range sums {
		if k.kind == Tensor {
			t.Errorf("sites of kind Tensor %v are in no Tensors", k)
		}
	}
	for i, x := range s.Parts() {
		b := s.Balances[i]
		if x.UUID != b.UUID || uint64(max(int64(b.Usage)+b.Since, 0)) != x.Tensors+x.Cached+x.Driver+x.Rounding+x.Untraced+x.OlderAllocated+x.OlderCached+x.Foreign+x.Unplaced+x.Unexplained {
			t.Errorf("parts %+v do not add up to %+v", x, b)
		}
		if x.Unexplained > 0 && x.Beyond() > 0 {
			t.Errorf("parts %+v have both more and less than NVML's figure", x)
		}
	}
	checkSums(t, s)
	for _, x := range s.Pools {
		if x.Used > x.Reserve || x.Used > maxSum || x.Destroyed && x.Objects == 0 {
			t.Errorf("pool %+v: uses more than it has, or should be gone", x)
		}
	}
	for _, r := range s.Releases {
		if r.Bytes > maxSum || r.Objects == 0 || r.Cause == 0 {
			t.Errorf("release %+v: the sum has wrapped, or there was none", r)
		}
	}
	for _, b := range s.Balances {
		if int64(b.Usage) != int64(b.Baseline+b.Live+b.Rounding)+b.Gap {
			t.Errorf("balance %+v does not add up", b)
		}
	}
}

// checkParts: the parts find the driver's memory on the same GPUs as the balances.
func checkParts(t *testing.T, l *Ledger, s *Snapshot) {
	t.Helper()
	driver := make([]uint64, len(s.Balances))
	for i := range s.Sites {
		x := &s.Sites[i]
		if b := s.BalanceOf(x.Process, x.Device); b >= 0 && x.Kind.Owned() {
			driver[b] += x.LiveBytes
		}
	}
	for i, b := range s.Balances {
		n := slices.IndexFunc(l.procs, func(p *process) bool {
			q := s.Processes[b.Process]
			return p.PID == q.PID && p.Begin == q.Begin && p.End == q.End
		})
		p := l.procs[n]
		_, only := p.onlyGPU(p.uuids())
		if want := sumOn(b.UUID, p.deviceLive(nil), p.uuids(), only).bytes; driver[i] != want {
			t.Errorf("%+v: %d bytes of sites are on it, %d by the balance's rules", b, driver[i], want)
		}
	}
}

// checkLedger tests that all parts of the books agree.
func checkLedger(t *testing.T, l *Ledger) {
	t.Helper()
	var unknown uint64
	strays, kept := 0, 0
	rooms := map[*site]bool{}
	for _, p := range l.procs {
		strays += len(p.strays)
		for _, r := range p.released {
			kept += len(r.ended)
		}
		unknown += checkProcess(t, p, rooms)
	}
	if strays != l.quotas[tableStrays].Used() {
		t.Errorf("processes have %d strays, the books say %d", strays, l.quotas[tableStrays].Used())
	}
	if unknown > l.stats.UnknownSizes || l.stats.UnknownSizes > 1<<32 {
		t.Errorf("%d live blocks without a size, counted %d", unknown, l.stats.UnknownSizes)
	}
	checkShares(t, l, map[table]int{tableUnmapped: kept})
}

// checkProcess tests the books of one process, and returns how many entries have no size.
func checkProcess(t *testing.T, p *process, rooms map[*site]bool) (unknown uint64) {
	t.Helper()
	sample := map[*tensors][2]count{}
	inPools := map[uint32]pool{}
	check := func(x *site) {
		checkList(t, p, x)
		if x.kind == Tensor {
			on := &p.tensors[x.total]
			c := sample[on]
			sample[on] = [2]count{
				{c[0].objects + x.liveObjects, c[0].bytes + x.liveBytes},
				{c[1].objects + x.allocObjects, c[1].bytes + x.allocBytes},
			}
		}
		for n := x.first; n != 0; n = p.entries.at(n).next {
			b := p.entries.at(n)
			if b.size == 0 && x.kind != aliased {
				unknown++
			}
			if x.kind == Async {
				p := inPools[b.extra]
				p.objects++
				p.used += b.size
				inPools[b.extra] = p
			}
		}
	}
	if len(p.siteOf)+len(p.unused) != len(p.sites) {
		t.Errorf("%d sites are in use and %d free, of %d", len(p.siteOf), len(p.unused), len(p.sites))
	}
	p.withSites(func(list []*site) {
		for _, x := range list {
			if p.sites[x.number] != x || rooms[x] {
				t.Errorf("site %+v has another's number, or is there twice", x.siteKey)
			}
			rooms[x] = true
			check(x)
		}
	})
	for n := 1; n < len(p.pools); n++ {
		if x, want := p.pools[n], inPools[uint32(n)]; x.objects != want.objects || x.used != want.used {
			t.Errorf("pool %d %+v has %d blocks of %d bytes", n, x, want.objects, want.used)
		}
	}
	for k := range p.tensors {
		if x := &p.tensors[k]; sample[x] != [2]count{x.live, x.freed} {
			t.Errorf("the sample on device %d counts %v and %v, its sites have %v", x.device, x.live, x.freed, sample[x])
		}
	}
	blocks := uint64(len(p.live))
	for n := p.entries.free; n != 0; n = p.entries.at(n).next {
		blocks++
	}
	if blocks != uint64(p.entries.used) {
		t.Errorf("%d blocks in use or free, %d handed out", blocks, p.entries.used)
	}
	if p.physical != nil {
		checkPhysical(t, p)
	}
	return unknown
}

// checkPhysical: all handles and mappings lead to live memories, which count them.
func checkPhysical(t *testing.T, p *process) {
	t.Helper()
	v := p.physical
	count := map[uint64]memory{}
	for _, h := range v.handles {
		m := count[h.memory]
		m.handles++
		count[h.memory] = m
		if h.references == 0 {
			t.Errorf("handle %+v has no references", h)
		}
	}
	var end uint64
	n := 0
	for x := range v.mappings.From(0) {
		if x.Start < end || x.Start >= x.End {
			t.Errorf("mapping %+v overlaps the one before", x)
		}
		end = x.End
		n++
		if id := x.Value.memory; id != 0 {
			m := count[id]
			m.mappings++
			count[id] = m
		}
	}
	if n != v.mappings.Len() || len(count) != len(v.memories) {
		t.Errorf("%d mappings of %d memories, counted %d of %d", n, len(count), v.mappings.Len(), len(v.memories))
	}
	for id, m := range v.memories {
		c := count[id]
		if b, ok := p.live[liveKey{id, memories}]; !ok || p.entries.at(b).address != id || c.handles != m.handles || c.mappings != m.mappings {
			t.Errorf("memory %d %+v is held by %+v, or not live", id, m, c)
		}
	}
}

// checkList: the blocks of a site are its live ones, linked both ways.
func checkList(t *testing.T, p *process, x *site) {
	t.Helper()
	var objects, bytes, squares uint64
	var before uint32
	for n := x.first; n != 0; before, n = n, p.entries.at(n).next {
		b := p.entries.at(n)
		w := count{1, b.size}
		if x.kind == Tensor {
			w = count{1 << b.extra, b.size << b.extra}
			squares += w.objects * w.objects
		}
		objects += w.objects
		bytes += w.bytes
		if b.prev != before || p.live[liveKey{b.address, x.space}] != n {
			t.Fatalf("block %d of site %+v is linked wrongly or not live", n, x.siteKey)
		}
	}
	if x.kind == aliased {
		return
	}
	if x.last != before || !p.purged && (objects != x.liveObjects || bytes != x.liveBytes || squares != x.liveSquares) {
		t.Errorf("site %+v lists %d blocks of %d bytes, counts %d of %d; squares %d, counts %d", x.siteKey, objects, bytes, x.liveObjects, x.liveBytes, squares, x.liveSquares)
	}
}
