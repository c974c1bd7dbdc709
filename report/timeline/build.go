// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger"
)

type rowKey struct {
	process int
	uuid    string
	device  int32 // where there is no uuid
}

// SiteKey identifies a site of a timeline. Process is an index into a list of the owner's.
type SiteKey struct {
	Process int
	Stack   uint64
	API     string
	Kind    ledger.Kind
	Device  int32
}

// KeyOf returns the key of a site of a snapshot.
func KeyOf(x *ledger.Site) SiteKey { return SiteKey{x.Process, x.Stack, x.API, x.Kind, x.Device} }

// Key returns the key of a site of a timeline.
func (x *Site) Key() SiteKey { return SiteKey{x.Process, x.Stack, x.API, x.Kind, x.Device} }

// builder collects the snapshots of a session. A process keeps its first index.
type builder struct {
	t         *Timeline
	sizes     *Sizes
	rows      map[rowKey]int
	first     map[int]int // row by process
	sites     map[SiteKey]int
	processes map[ledger.ProcessID]int
	last      []int // processes of the latest snapshot
	most      int   // largest sites of a snapshot whose bytes are kept; 0: all
}

func newBuilder() *builder {
	return &builder{t: &Timeline{}, sizes: &Sizes{}, rows: map[rowKey]int{}, first: map[int]int{}, sites: map[SiteKey]int{}, processes: map[ledger.ProcessID]int{}}
}

// replace takes a snapshot of a moment that is the last one so far, or follows it.
func (b *builder) replace(steps int, at uint64, s *ledger.Snapshot) {
	i := len(b.t.Times)
	if i > 0 && b.t.Times[i-1] == at {
		i--
		b.t.Times = b.t.Times[:i]
		b.clear(i)
	}
	b.look(i, steps, at, s)
}

// keep drops the moments that are not wanted.
func (b *builder) keep(wanted []uint64) {
	var kept []int
	times := b.t.Times[:0]
	for i, at := range b.t.Times {
		if _, ok := slices.BinarySearch(wanted, at); ok {
			kept, times = append(kept, i), append(times, at)
		}
	}
	b.t.Times = times
	b.change(func(list []uint64) []uint64 { return picked(list, kept) })
}

// picked moves some values of a list to its front, and sets the others to 0.
func picked(list []uint64, places []int) []uint64 {
	for to, from := range places {
		list[to] = list[from]
	}
	clear(list[len(places):])
	return list
}

// trim drops the moments that are not wanted, and the room for others.
func (b *builder) trim(wanted []uint64) {
	b.keep(wanted)
	n := len(b.t.Times)
	b.change(func(list []uint64) []uint64 { return list[:n:n] })
}

func (b *builder) look(i, steps int, at uint64, s *ledger.Snapshot) {
	b.t.Times = append(b.t.Times, at)
	b.t.GPUs = s.GPUs
	index := make([]int, len(s.Processes))
	for k := range s.Processes {
		p := &s.Processes[k]
		key := p.ID()
		n, ok := b.processes[key]
		if !ok {
			n = len(b.t.Processes)
			b.processes[key] = n
			b.t.Processes = append(b.t.Processes, ledger.Process{})
		}
		b.t.Processes[n] = *p
		index[k] = n
	}
	b.endMissing(index, at)
	b.last = index
	placed := make([]bool, len(s.Processes))
	for _, x := range s.Parts() {
		placed[x.Process] = true
		if p := &s.Processes[x.Process]; p.End != 0 && p.End <= at {
			continue // its memory is gone
		}
		r := b.row(rowKey{process: index[x.Process], uuid: x.UUID}, steps)
		r.Device = max(r.Device, x.Device)
		r.Usage[i] = uint64(max(int64(x.Usage)+x.Since, 0)) // an alloc node that ended may have had no memory
		r.Tensors[i], r.Cached[i], r.Driver[i] = x.Tensors+x.Untraced, x.Cached, x.Driver+x.Unplaced
		r.Before[i] = x.OlderAllocated + x.OlderCached + x.Foreign
		r.Rounding[i], r.Unexplained[i] = x.Rounding, x.Unexplained
		if n := x.Beyond(); n > 0 {
			r.Beyond = withStep(r.Beyond, steps, i, n)
		}
		if x.Unlisted > 0 {
			r.Asleep = withStep(r.Asleep, steps, i, x.Unlisted)
		}
	}
	b.withoutNVML(i, steps, s, index, placed)
	b.asleep(i, steps, s, index)
	b.system(i, steps, s, index)
	b.hostAndSites(i, steps, at, s, index)
}

// endMissing ends processes that the books have forgotten since the moment before: they ended
// meanwhile, if not earlier.
func (b *builder) endMissing(index []int, at uint64) {
	here := make([]bool, len(b.t.Processes))
	for _, n := range index {
		here[n] = true
	}
	for n := range here {
		if p := &b.t.Processes[n]; !here[n] && p.End == 0 {
			p.End = at
		}
	}
}

// withoutNVML fills rows from the books alone, for processes that NVML has not listed yet.
func (b *builder) withoutNVML(i, steps int, s *ledger.Snapshot, index []int, placed []bool) {
	for k := range s.Tensors {
		x := &s.Tensors[k]
		if x.Device == ledger.CPUDevice || placed[x.Process] || s.Processes[x.Process].End != 0 {
			continue
		}
		r := b.row(rowKey{index[x.Process], "", x.Device}, steps)
		r.Tensors[i], r.Cached[i] = x.LiveBytes-x.Asleep+x.Untraced, x.Cached
		r.Before[i] = x.Older - x.OlderAsleep - x.OlderMoved - x.Untraced + x.OlderCached
	}
	for k := range s.Sites {
		x := &s.Sites[k]
		if x.Kind.Owned() && !x.Segment && x.LiveBytes > 0 && !placed[x.Process] && s.Processes[x.Process].End == 0 {
			b.row(rowKey{index[x.Process], "", x.Device}, steps).Driver[i] += x.LiveBytes
		}
	}
}

func (b *builder) row(key rowKey, steps int) *Row {
	n, ok := b.rows[key]
	if !ok {
		n = len(b.t.Rows)
		b.rows[key] = n
		if key.uuid != "" {
			key.device = ledger.UnknownDevice // until it is learned
		}
		if _, ok := b.first[key.process]; !ok {
			b.first[key.process] = n
		}
		values := make([]uint64, 8*steps)
		part := func(k int) []uint64 { return values[k*steps : (k+1)*steps : (k+1)*steps] }
		b.t.Rows = append(b.t.Rows, Row{
			Process: key.process, UUID: key.uuid, Device: key.device, Usage: part(0), Tensors: part(1), Cached: part(2),
			Driver: part(3), Before: part(4), Host: part(5), Rounding: part(6), Unexplained: part(7),
		})
	}
	return &b.t.Rows[n]
}

func (b *builder) hostAndSites(i, steps int, at uint64, s *ledger.Snapshot, index []int) {
	host, unlisted := map[int]uint64{}, s.AnyUnlisted()
	for k := range s.Sites {
		x := s.Sites[k]
		p := &s.Processes[x.Process]
		x.Process = index[x.Process]
		live := x.LiveBytes - min(x.Asleep, x.LiveBytes)
		if x.Segment {
			live -= min(x.Tensors, live)
		}
		owned := x.Kind.Owned() || x.Kind == ledger.Tensor
		if p.End != 0 && p.End <= at || unlisted && owned && s.IsUnlisted(s.Sites[k].Process, x.Device) {
			live = 0
		}
		b.site(k, i, steps, at, &x, live)
		switch {
		case x.Kind.OnHost():
			host[x.Process] += live
		case x.Kind == ledger.Managed && live > 0:
			r := b.rowOf(s, s.Sites[k].Process, x.Device, steps, index)
			r.Managed = withStep(r.Managed, steps, i, live)
		}
	}
	for process := range b.t.Processes {
		if bytes := host[process]; bytes > 0 {
			b.firstRow(process, steps).Host[i] = bytes
		}
	}
}

// site adds the bytes of the k-th site of a snapshot, whose process has its first index.
func (b *builder) site(k, i, steps int, at uint64, x *ledger.Site, live uint64) {
	key := KeyOf(x)
	n, ok := b.sites[key]
	if !ok {
		if b.most > 0 && (k >= b.most || live == 0) {
			return
		}
		n = len(b.t.Sites)
		b.sites[key] = n
		b.t.Sites = append(b.t.Sites, Site{Live: make([]uint64, steps)})
	}
	b.t.Sites[n].Site, b.t.Sites[n].seen = *x, at
	b.t.Sites[n].Live[i] += live
}

// asleep fills rows with the tensors asleep.
func (b *builder) asleep(i, steps int, s *ledger.Snapshot, index []int) {
	for k := range s.Tensors {
		x := &s.Tensors[k]
		if n := x.Asleep + x.OlderAsleep; n > 0 && s.Processes[x.Process].End == 0 {
			r := b.rowOf(s, x.Process, x.Device, steps, index)
			r.Asleep = withStep(r.Asleep, steps, i, n)
		}
	}
}

// system fills rows with what the system allocated on the NUMA nodes of GPUs.
func (b *builder) system(i, steps int, s *ledger.Snapshot, index []int) {
	for k := range s.System {
		x := &s.System[k]
		r := b.row(rowKey{process: index[x.Process], uuid: x.UUID}, steps)
		r.Device = max(r.Device, x.Device)
		r.System = withStep(r.System, steps, i, x.Bytes)
	}
}

// rowOf returns the row of a process of a snapshot and the GPU of a device.
func (b *builder) rowOf(s *ledger.Snapshot, process int, device int32, steps int, index []int) *Row {
	if n := s.BalanceOf(process, device); n >= 0 {
		r := b.row(rowKey{process: index[process], uuid: s.Balances[n].UUID}, steps)
		r.Device = max(r.Device, s.Balances[n].Device)
		return r
	}
	return b.row(rowKey{index[process], "", device}, steps)
}

// withStep adds to one value of a list, which is nil while all its values are 0.
func withStep(list []uint64, steps, i int, bytes uint64) []uint64 {
	if list == nil {
		list = make([]uint64, steps)
	}
	list[i] += bytes
	return list
}

// firstRow returns the row of a process's first GPU, or one of no GPU.
func (b *builder) firstRow(process, steps int) *Row {
	if n, ok := b.first[process]; ok {
		return &b.t.Rows[n]
	}
	return b.row(rowKey{process, "", ledger.UnknownDevice}, steps)
}

// clear sets everything at a moment to 0.
func (b *builder) clear(i int) {
	b.change(func(list []uint64) []uint64 { list[i] = 0; return list })
}

// change replaces the list of each row and site.
func (b *builder) change(f func([]uint64) []uint64) {
	for i := range b.t.Rows {
		b.t.Rows[i].change(f)
	}
	for i := range b.t.Sites {
		b.t.Sites[i].Live = f(b.t.Sites[i].Live)
	}
}

// change replaces each list of a row that is there.
func (r *Row) change(f func([]uint64) []uint64) {
	for _, list := range []*[]uint64{&r.Usage, &r.Tensors, &r.Cached, &r.Driver, &r.Rounding, &r.Before, &r.Unexplained, &r.Beyond, &r.Host, &r.Managed, &r.System, &r.Asleep} {
		if *list != nil {
			*list = f(*list)
		}
	}
}

// empty reports whether a row has nothing at any moment.
func (r *Row) empty() bool {
	for _, list := range [][]uint64{r.Usage, r.Tensors, r.Cached, r.Driver, r.Rounding, r.Before, r.Unexplained, r.Beyond, r.Host, r.Managed, r.System, r.Asleep} {
		if !empty(list) {
			return false
		}
	}
	return true
}

func empty(list []uint64) bool {
	return !slices.ContainsFunc(list, func(v uint64) bool { return v != 0 })
}
