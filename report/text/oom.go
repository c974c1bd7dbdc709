// SPDX-License-Identifier: Apache-2.0

package text

import (
	"cmp"
	"io"
	"slices"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/purpose"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// WriteOOM writes the page on one out-of-memory error: which line asked for memory, why the request
// failed, what its memory is for, the processes on the GPU, who keeps the memory, the largest sites
// with their growth, and doubts as footnotes. The snapshot is of the error or later.
func WriteOOM(w io.Writer, s *ledger.Snapshot, st callstack.Stacks, o report.OOM, options report.Options, screen Screen) error {
	v := newOOMCase(s, &o)
	p := newPage(screen)
	n := &notes{doubts: report.Losses(s)} // without readingTexts: NVML is read again after the error
	v.head(p, n)
	p.line(plain, 0, "")
	p.paragraph("", format.Join(v.why(), v.stuckText(st)))
	v.asker(p, st, options)
	explainPart(p, s, st, report.Options{}, func(b *purpose.Balance) bool { return b.Process == v.process && b.UUID == v.uuid })
	v.gpuPart(p, n, options.Limit())
	v.allocatorPart(p)
	if c := v.cache(); c != nil {
		kindRows(p, c)
	}
	if c := v.stuck(st); c != nil {
		stuckPart(p, s, c, min(options.Limit(), maxSummaryStuck))
	}
	v.keptPart(p, n, options)
	v.sitesPart(p, st, n, options)
	v.neighborsPart(p, st, options.Limit())
	v.growthPart(p)
	footnotes(p, n)
	return p.writeTo(w)
}

// oomCase is an error with what the books and NVML report about its GPU.
type oomCase struct {
	s       *ledger.Snapshot
	o       *report.OOM
	process int         // index into s.Processes; -1: not traced
	uuid    string      // "": unknown
	only    bool        // the process is on no other GPU
	gpu     *ledger.GPU // nil without NVML
	tensors *ledger.Tensors
	users   []oomUser // of the GPU, without the process itself; largest first
	own     uint64    // usage of the process on the GPU
	left    bool      // it had left the GPU when NVML was read; own is its last usage before
	used    uint64    // of the GPU, with own
}

// oomUser is another process on the GPU.
type oomUser struct {
	pid     uint32
	process int    // index into Snapshot.Processes; -1: not traced
	name    string // of one that is not
	bytes   uint64
}

func newOOMCase(s *ledger.Snapshot, o *report.OOM) *oomCase {
	v := &oomCase{s: s, o: o, process: -1}
	for i := range s.Processes { // ordered by begin: take the last that fits
		if p := &s.Processes[i]; p.PID == o.PID && (v.process < 0 || p.Begin <= o.Time) {
			v.process = i
		}
	}
	if v.process < 0 {
		return v
	}
	if o.Comm == "" { // it may have ended before its name was read
		o.Comm = s.Processes[v.process].Comm
	}
	if o.Kind.OnHost() {
		return v
	}
	v.findGPU()
	v.findUsers()
	for i := range s.Tensors {
		if t := &s.Tensors[i]; o.FromTorch() && t.Process == v.process && t.Device == o.Device {
			v.tensors = t
		}
	}
	return v
}

func (v *oomCase) findGPU() {
	v.uuid = report.GPUUUID(v.s, v.process, v.o.Device, ledger.Device)
	on := v.processGPUs()
	v.only = len(on) == 1
	if v.uuid == "" && v.only {
		v.uuid = on[0]
		v.o.Device = int32(slices.Index(v.s.Processes[v.process].Devices, v.uuid)) // -1: unknown
	}
	gpus := v.o.GPUs
	if len(gpus) == 0 {
		gpus = v.s.GPUs
	}
	for i := range gpus {
		if gpus[i].UUID == v.uuid && v.uuid != "" {
			v.gpu = &gpus[i]
			v.used = v.gpu.Used
		}
	}
}

// processGPUs returns the GPUs on which NVML has seen the process.
func (v *oomCase) processGPUs() []string {
	var on []string
	for i := range v.s.Balances {
		if b := &v.s.Balances[i]; b.Process == v.process {
			on = append(on, b.UUID)
		}
	}
	for _, u := range v.o.Usage {
		if u.PID == v.o.PID {
			on = append(on, u.UUID)
		}
	}
	slices.Sort(on)
	return slices.Compact(on)
}

// findUsers takes NVML's reading after the error, or else its last one before.
func (v *oomCase) findUsers() {
	usage := v.o.Usage
	if v.o.Read == 0 {
		usage = v.lastUsage()
	}
	v.left = true
	for _, u := range usage {
		switch i := v.processOf(u.PID); {
		case u.UUID != v.uuid || v.uuid == "":
		case i == v.process:
			v.own, v.left = u.Bytes, false
		case i >= 0:
			v.users = append(v.users, oomUser{pid: u.PID, process: i, bytes: u.Bytes})
		default:
			name := format.Process(&ledger.Process{PID: u.PID, Comm: v.o.Names[u.PID]})
			v.users = append(v.users, oomUser{pid: u.PID, process: -1, name: name, bytes: u.Bytes})
		}
	}
	slices.SortStableFunc(v.users, func(a, b oomUser) int { return cmp.Compare(b.bytes, a.bytes) })
	if v.left {
		v.own = v.balance(v.process).Usage
		v.used += v.own
	}
}

// processOf returns the index of the latest process of a pid, -1 if none was traced.
func (v *oomCase) processOf(pid uint32) int {
	if v.process >= 0 && pid == v.o.PID {
		return v.process
	}
	for i := len(v.s.Processes) - 1; i >= 0; i-- {
		if v.s.Processes[i].PID == pid {
			return i
		}
	}
	return -1
}

// lastUsage returns NVML's last readings of traced processes before the error.
func (v *oomCase) lastUsage() []ledger.Usage {
	var list []ledger.Usage
	for i := range v.s.Balances {
		b := &v.s.Balances[i]
		if p := &v.s.Processes[b.Process]; v.lived(b.Process) {
			list = append(list, ledger.Usage{PID: p.PID, UUID: b.UUID, Bytes: b.Usage})
		}
	}
	return list
}

// lived reports whether a process existed at the error.
func (v *oomCase) lived(process int) bool {
	end := v.s.Processes[process].End
	return end == 0 || end > v.o.Time
}

// balance returns that of a process on the GPU, zero without one.
func (v *oomCase) balance(process int) (none ledger.Balance) {
	for _, b := range v.s.Balances {
		if b.Process == process && b.UUID == v.uuid {
			return b
		}
	}
	return none
}

func (v *oomCase) free() uint64 { return report.Minus(v.gpu.Total, v.used) }

// others returns the usage of all other processes on the GPU.
func (v *oomCase) others() (sum uint64) {
	for _, u := range v.users {
		sum += u.bytes
	}
	return sum
}

// cached returns what PyTorch's allocator held in no block.
func (v *oomCase) cached() uint64 { return report.Minus(v.o.Reserved, v.o.Allocated) }
