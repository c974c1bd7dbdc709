// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"cmp"
	"maps"
	"slices"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// reading brings the rows up to date with one snapshot.
type reading struct {
	s       *ledger.Snapshot
	table   *table
	counted []*counted      // by process
	labels  []labels        // by process, without the GPU
	gpus    map[string]*gpu // by UUID
	rows    map[onGPU]*row  // of processes
	pid     bool
}

type onGPU struct {
	process int
	uuid    string
}

// gpu is one GPU or MIG instance that NVML lists.
type gpu struct {
	*ledger.GPU
	label   string // "0"
	divided bool   // into instances, which have its memory
	planes  uint64
	read    uint64 // time of the latest reading; 0: unknown
}

// row returns the row of a process on a GPU.
func (d *reading) row(process int, uuid string) *row {
	at := onGPU{process, uuid}
	if r := d.rows[at]; r != nil {
		return r
	}
	r := d.table.of(d.onGPU(d.labels[process], uuid), originOf(&d.s.Processes[process]))
	d.rows[at] = r
	return r
}

func (d *reading) onGPU(l labels, uuid string) labels {
	l.uuid = label(uuid)
	if g := d.gpus[uuid]; g != nil {
		l.gpu = g.label
	}
	return l
}

// uuidOf returns the GPU of a device of a process, "" on the host or if it is unknown.
func (d *reading) uuidOf(process int, device int32, kind ledger.Kind) string {
	if kind.OnHost() || device == ledger.CPUDevice {
		return ""
	}
	if uuid := report.GPUUUID(d.s, process, device, kind); uuid != "" {
		return uuid
	}
	if b := d.s.BalanceOf(process, device); b >= 0 {
		return d.s.Balances[b].UUID
	}
	return ""
}

func (d *reading) runs(process int) bool { return d.s.Processes[process].End == 0 }

// sumAllocators sums what was read of PyTorch's allocators.
func (d *reading) sumAllocators() {
	for i := range d.s.Caches {
		c := &d.s.Caches[i]
		if !d.runs(c.Process) {
			continue
		}
		a := &d.row(c.Process, d.uuidOf(c.Process, c.Index, ledger.Tensor)).allocator
		if a.kinds == nil {
			a.kinds = map[report.CacheKind]uint64{}
		}
		for _, k := range report.CacheKinds {
			a.kinds[k] += k.Of(&c.Cache)
		}
		a.read = true
		a.retries += c.Counters.Retries
		a.peak = max(a.peak, c.Counters.Allocated.Peak)
	}
}

// sumPlanes sums the memory of running processes.
func (d *reading) sumPlanes() {
	sums := map[onGPU]*[len(planes)]uint64{}
	of := func(process int, uuid string) *[len(planes)]uint64 {
		at := onGPU{process, uuid}
		if sums[at] == nil {
			sums[at] = new([len(planes)]uint64)
		}
		return sums[at]
	}
	for _, h := range report.Holdings(d.s) {
		if !d.runs(h.Process) || h.Live == 0 {
			continue
		}
		if h.UUID == "" {
			h.UUID = d.uuidOfHolding(&h)
		}
		if h.Apart() {
			d.addOutside(&h)
			continue
		}
		if h.Mark == report.MarkUntraced {
			d.row(h.Process, h.UUID).untraced += uint64(h.Live)
		}
		for i, name := range planes {
			if name == h.Plane {
				of(h.Process, h.UUID)[i] += uint64(h.Live)
			}
		}
	}
	for i := range d.s.Balances {
		b := &d.s.Balances[i]
		if !d.runs(b.Process) {
			continue
		}
		of(b.Process, b.UUID) // it has a row even without memory
		if g := d.gpus[b.UUID]; g != nil {
			g.read = max(g.read, b.Time)
		}
	}
	for _, x := range d.s.Parts() {
		if d.runs(x.Process) {
			d.row(x.Process, x.UUID).overbooked += x.Beyond()
		}
	}
	order := slices.SortedFunc(maps.Keys(sums), func(a, b onGPU) int {
		return cmp.Or(cmp.Compare(a.process, b.process), cmp.Compare(a.uuid, b.uuid))
	})
	for _, at := range order {
		r := d.row(at.process, at.uuid)
		r.running = true
		for i, n := range sums[at] {
			r.planes[i] += n
			if g := d.gpus[at.uuid]; g != nil {
				g.planes += n
			}
		}
	}
}

func (d *reading) uuidOfHolding(h *report.Holding) string {
	switch {
	case h.OnHost():
		return ""
	case h.Site != nil:
		return d.uuidOf(h.Process, h.Device, h.Site.Kind)
	}
	return d.uuidOf(h.Process, h.Device, ledger.Device)
}

func (d *reading) addOutside(h *report.Holding) {
	for i, name := range outside {
		if plane := h.Plane; name == plane || name == report.PlaneHost && plane == report.PlaneTensor {
			d.row(h.Process, h.UUID).outside[i] += uint64(h.Live)
		}
	}
}

// sumOutside sums memory that was imported from other processes.
func (d *reading) sumOutside() {
	for i := range d.s.Sites {
		if x := &d.s.Sites[i]; x.Kind == ledger.Imported && x.LiveBytes > 0 && d.runs(x.Process) {
			d.row(x.Process, d.uuidOf(x.Process, x.Device, x.Kind)).outside[len(outside)-1] += x.LiveBytes
		}
	}
}

// findPeaks finds the most that one process of a row held: tensors where PyTorch reports them,
// because segments follow late or never shrink.
func (d *reading) findPeaks() {
	torch, reports := map[onGPU]bool{}, report.ReportTensors(d.s)
	for i := range d.s.Tensors {
		if t := &d.s.Tensors[i]; t.Device != ledger.CPUDevice && t.Peak > 0 {
			at := onGPU{t.Process, d.uuidOf(t.Process, t.Device, ledger.Tensor)}
			torch[at] = true
			r := d.row(at.process, at.uuid)
			r.peak = max(r.peak, t.Peak)
		}
	}
	for i := range d.s.Processes {
		p, rows := &d.s.Processes[i], map[*row]bool{}
		for _, t := range p.Totals {
			if at := (onGPU{i, d.uuidOf(i, t.Device, t.Kind)}); t.Kind.Owned() && !torch[at] {
				r := d.row(i, at.uuid)
				r.peak = max(r.peak, t.PeakBytes)
				rows[r] = true
			}
		}
		if len(rows) == 1 && !reports[i] { // of several GPUs only the peak of each kind is known
			for r := range rows {
				r.peak = max(r.peak, p.PeakBytes)
			}
		}
	}
	for i := range d.s.Balances {
		b := &d.s.Balances[i]
		r := d.row(b.Process, b.UUID)
		r.nvml = max(r.nvml, b.Peak)
	}
}

// countGone counts what processes did that came and left the books between two snapshots. Their
// workload is unknown.
func (d *reading) countGone(c *counted) {
	f := &d.s.Forgotten
	now := amounts{}
	for i := range f.Sums {
		if x := &f.Sums[i]; !x.Kind.IsObject() {
			now.add(place{x.UUID, format.Kind(x.Kind)}, &counts{x.AllocObjects, x.AllocBytes, x.FreeObjects, x.FreeBytes})
		}
	}
	c.memory.advance(now, func(at place, more *counts) {
		if *more != (counts{}) {
			d.rowWithoutProcess(at.uuid).memory.add(place{what: at.what}, more)
		}
	})
	var known uint64
	for _, x := range c.failures {
		known += x.allocs
	}
	if more := report.Minus(f.Failures, known); more > 0 {
		c.failures.add(place{what: other}, &counts{allocs: more})
		d.rowWithoutProcess("").failures.add(place{what: other}, &counts{allocs: more})
	}
	if more := report.Minus(f.OutOfMemory, c.ooms); more > 0 {
		c.ooms += more
		d.rowWithoutProcess("").ooms += more
	}
}

func (d *reading) rowWithoutProcess(uuid string) *row {
	return d.table.of(d.onGPU(labels{}, uuid), origin{})
}
