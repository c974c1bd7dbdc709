// SPDX-License-Identifier: Apache-2.0

// Package balance divides what each GPU is used for into planes, and judges which of them grow,
// since when and how fast, and when the GPU is full. It knows no format and makes no sentences:
// package report does.
package balance

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Plane is a part of what a GPU uses. Each byte is in one.
type Plane uint8

const (
	Tensors     Plane = iota // PyTorch's, with those from before the attach
	Cache                    // PyTorch's segments without their tensors
	Driver                   // other memory allocated from CUDA, and what the driver holds for allocations beyond their bytes
	Before                   // contexts, modules and what else there was at the attach
	Unexplained              // of traced processes: what NVML reports beyond the others
	Others                   // what no traced process has
	planeCount
)

// Row is one plane of a GPU.
type Row struct {
	Plane Plane
	Bytes uint64
	verdict.Trend
	Process int // index into Snapshot.Processes of the process in which it grows most; -1: unknown or none
	Site    int // of Cache: index into Snapshot.Sites of the largest site there; -1: none
	// Of Cache that grows: what these allocators reserved, and what tensors take of that.
	Reserved, InUse uint64
	// Of Driver that grows by CUDA's memory pools: how many there are, and what they hold unused.
	Pools   int
	Pooled  uint64
	fastest float64
}

// Balance is what one GPU is used for: the rows add up to Used.
type Balance struct {
	GPU     *ledger.GPU // nil: NVML does not list it
	Process int         // without a GPU: whose device it is
	Device  int32       // likewise, or what its traced processes call the GPU if they agree; else ledger.UnknownDevice
	Used    uint64      // bytes at the snapshot's moment, by the rows
	Rows    []Row       // those of 0 bytes that do not grow are left out
	// Driver objects that were made since the baseline and live, most first, if they are many or
	// Unexplained grows.
	Objects []*ledger.Object
	Rate    float64       // bytes per second of all rows that grow and are not paused
	Full    time.Duration // until it is full at this rate; 0: unknown or never
}

// Class is the worst class of the rows.
func (b *Balance) Class() (class verdict.Class) {
	for i := range b.Rows {
		class = max(class, b.Rows[i].Class)
	}
	return class
}

// Row returns the row of a plane, or nil.
func (b *Balance) Row(p Plane) *Row {
	if i := slices.IndexFunc(b.Rows, func(r Row) bool { return r.Plane == p }); i >= 0 {
		return &b.Rows[i]
	}
	return nil
}

// manyObjects is how many live driver objects of one stack are worth a word even if their memory is
// not known.
const manyObjects = 64

// builder makes the balances of one snapshot.
type builder struct {
	s    *ledger.Snapshot
	list []Balance
	of   map[string]int // by UUID
	none map[device]int // without a GPU
}

type device struct {
	process int
	device  int32
}

// Of returns the balance of each GPU that traced processes use, those that grow first: for certain,
// then perhaps, the fastest first. Lines are those of verdict.JudgeLines.
func Of(s *ledger.Snapshot, lines []verdict.Group) []Balance {
	b := builder{s: s, of: map[string]int{}, none: map[device]int{}}
	parts := s.Parts()
	for i := range parts {
		b.part(&parts[i])
	}
	for i := range s.Tensors { // of GPUs on which NVML lists no process
		t := &s.Tensors[i]
		if t.Device >= 0 && s.Processes[t.Process].End == 0 && s.BalanceOf(t.Process, t.Device) < 0 {
			rows := b.rows(b.at(t.Process, t.Device))
			rows[Tensors].Bytes += t.Allocated - min(t.Asleep+t.OlderAsleep, t.Allocated)
			rows[Cache].Bytes += t.Cached + t.OlderCached
			rows[Driver].Bytes -= min(t.Segments, rows[Driver].Bytes)
		}
	}
	for _, w := range verdict.JudgeWhole(s, lines) {
		b.whole(&w)
	}
	for i := range b.list {
		b.readings(&b.list[i])
		b.objects(&b.list[i])
		b.list[i].finish()
	}
	slices.SortStableFunc(b.list, func(x, y Balance) int {
		return cmp.Or(cmp.Compare(max(y.Class(), verdict.Cache), max(x.Class(), verdict.Cache)), cmp.Compare(y.Rate, x.Rate))
	})
	return b.list
}

func (b *builder) rows(n int) []Row { return b.list[n].Rows }

// at returns the index of the balance of a device.
func (b *builder) at(process int, d int32) int {
	uuid := ""
	if n := b.s.BalanceOf(process, d); n >= 0 {
		uuid = b.s.Balances[n].UUID
	} else if list := b.s.Processes[process].Devices; d >= 0 && int(d) < len(list) {
		uuid = list[d]
	}
	n, known := b.of[uuid]
	if uuid == "" {
		n, known = b.none[device{process, d}]
	}
	if known {
		if b.list[n].Device != d {
			b.list[n].Device = ledger.UnknownDevice
		}
		return n
	}
	n = len(b.list)
	x := Balance{Process: process, Device: d, Rows: make([]Row, planeCount)}
	for p := range x.Rows {
		x.Rows[p] = Row{Plane: Plane(p), Process: -1, Site: -1}
	}
	if uuid == "" {
		b.none[device{process, d}] = n
	} else {
		b.of[uuid] = n
		if k := slices.IndexFunc(b.s.GPUs, func(g ledger.GPU) bool { return g.UUID == uuid }); k >= 0 {
			x.GPU = &b.s.GPUs[k]
		}
	}
	b.list = append(b.list, x)
	b.books(n, process, d)
	return n
}

// books adds what a process allocated on a device of which NVML has no figure.
func (b *builder) books(n, process int, d int32) {
	if b.s.BalanceOf(process, d) >= 0 {
		return
	}
	for i := range b.s.Sites {
		if x := &b.s.Sites[i]; x.Process == process && x.Device == d && x.Kind.Owned() {
			b.rows(n)[Driver].Bytes += x.LiveBytes
		}
	}
}

// part adds what one process uses of a GPU.
func (b *builder) part(x *ledger.Part) {
	if b.s.Processes[x.Process].End != 0 {
		return
	}
	rows := b.rows(b.at(x.Process, x.Device))
	rows[Unexplained].Bytes += x.Unexplained
	rows[Tensors].Bytes += x.Tensors + x.Untraced + x.OlderAllocated
	rows[Cache].Bytes += x.Cached + x.OlderCached
	rows[Driver].Bytes += x.Driver + x.Rounding + x.Unplaced
	rows[Before].Bytes += x.Foreign
}

// whole adds how what one process has on a device grows.
func (b *builder) whole(w *verdict.Whole) {
	n := b.at(w.Process, w.Device)
	for _, x := range [...]struct {
		plane Plane
		trend verdict.Trend
	}{{Tensors, w.Tensors}, {Cache, w.Cache}, {Driver, w.Driver}} {
		r := &b.rows(n)[x.plane]
		if !x.trend.Grows() {
			if !r.Grows() {
				r.Class = max(r.Class, x.trend.Class)
			}
			continue
		}
		r.Add(x.trend)
		if x.trend.Rate >= r.fastest {
			r.fastest, r.Process = x.trend.Rate, w.Process
			if x.plane == Cache {
				r.Site = w.Stack
			}
		}
		if t := b.s.TensorsOn(w.Process, w.Device); t != nil && x.plane == Cache {
			r.Reserved += max(t.Reserved, t.Allocated)
			r.InUse += t.Allocated
		}
	}
}

// readings adds the unexplained and other processes, by NVML's readings.
func (b *builder) readings(x *Balance) {
	if x.GPU == nil || !slices.ContainsFunc(b.s.Balances, func(v ledger.Balance) bool { return v.UUID == x.GPU.UUID }) {
		return
	}
	traced := uint64(0)
	for i := range x.Rows {
		traced += x.Rows[i].Bytes
	}
	now := x.GPU.Now()
	x.Rows[Others].Bytes = now - min(traced, now)
	var unexplained, others, explained []verdict.Level
	for _, g := range x.GPU.Past {
		explained = append(explained, verdict.Level{Time: g.Time, Bytes: g.Traced - min(g.Unexplained, g.Traced)})
		unexplained = append(unexplained, verdict.Level{Time: g.Time, Bytes: g.Unexplained})
		others = append(others, verdict.Level{Time: g.Time, Bytes: g.Used - min(g.Traced, g.Used)})
	}
	x.Rows[Unexplained].Trend, x.Rows[Others].Trend = verdict.JudgeLevels(b.s, unexplained), verdict.JudgeLevels(b.s, others)
	b.pools(x, explained)
}

// pools adds what memory pools of CUDA hold unused, if it grows: as they are made and not
// destroyed. The books have no past of it; NVML's readings do, where nothing else grows.
func (b *builder) pools(x *Balance, explained []verdict.Level) {
	r := &x.Rows[Driver]
	if r.Grows() || x.Rows[Tensors].Grows() || x.Rows[Cache].Grows() {
		return
	}
	pools, pooled, process, most := 0, uint64(0), -1, uint64(0)
	for i := range b.s.Pools {
		p := &b.s.Pools[i]
		if n := b.s.BalanceOf(p.Process, p.Device); n < 0 || b.s.Balances[n].UUID != x.GPU.UUID || p.Destroyed || p.Held <= p.Used || b.s.Processes[p.Process].End != 0 {
			continue
		}
		pools, pooled = pools+1, pooled+p.Held-p.Used
		if p.Held-p.Used > most {
			process, most = p.Process, p.Held-p.Used
		}
	}
	if t := verdict.JudgeCachedLevels(b.s, explained); t.Grows() && pooled >= t.Grown/2 {
		t.Grown = min(t.Grown, pooled)
		r.Trend, r.Pools, r.Pooled, r.Process = t, pools, pooled, process
	}
}

// objects adds the driver objects that were made since the baseline.
func (b *builder) objects(x *Balance) {
	grows := x.Rows[Unexplained].Grows()
	for i := range b.s.Objects {
		o := &b.s.Objects[i]
		if o.Live <= o.Before || !grows && o.Live-o.Before < manyObjects || b.s.Processes[o.Process].End != 0 {
			continue
		}
		if n := b.s.BalanceOf(o.Process, o.Device); n >= 0 && x.GPU != nil && b.s.Balances[n].UUID == x.GPU.UUID ||
			n < 0 && x.GPU == nil && x.Process == o.Process && x.Device == o.Device {
			x.Objects = append(x.Objects, o)
		}
	}
	slices.SortStableFunc(x.Objects, func(a, b *ledger.Object) int { return cmp.Compare(b.Live-b.Before, a.Live-a.Before) })
}

// finish sums the rows, drops the empty ones, and computes when the GPU is full.
func (x *Balance) finish() {
	free := uint64(0)
	for i := range x.Rows {
		r := &x.Rows[i]
		x.Used += r.Bytes
		if r.Grows() && !r.Paused() {
			x.Rate += r.Rate
		}
	}
	if x.GPU != nil && x.Rate > 0 {
		free = x.GPU.Total - min(x.GPU.Now(), x.GPU.Total)
		if x.Rows[Tensors].Grows() && !x.Rows[Cache].Grows() { // they take it first
			free += x.Rows[Cache].Bytes
		}
		x.Full = time.Duration(min(float64(free)/x.Rate, math.MaxInt64/2e9) * float64(time.Second)).Round(time.Second)
	}
	x.Rows = slices.DeleteFunc(x.Rows, func(r Row) bool { return r.Bytes == 0 && !r.Grows() })
}
