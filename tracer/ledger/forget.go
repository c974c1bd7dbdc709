// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"math"
	"slices"
)

// Forgotten sums the processes that left the books: see Forget. With it, sums over a snapshot never
// go down.
type Forgotten struct {
	Before    uint64 // Forget.Before of the latest; 0: none
	Processes uint64
	// Of the processes, as Snapshot.Failures and Stats.OutOfMemory have them.
	Failures, FailedBytes, OutOfMemory uint64
	// Sum of the processes' peaks, as Peak.Bytes has them, and the highest.
	Peaks, HighestPeak uint64
	Sums               []ForgottenSum // by UUID, then kind
}

// ForgottenSum sums what the forgotten processes allocated on one GPU and of one kind. What they
// had not freed ended with them.
type ForgottenSum struct {
	UUID                      string // "" on the host, if it is unknown, and beyond 256 GPUs
	Kind                      Kind
	Host                      bool   // it is on the host
	AllocObjects, FreeObjects uint64 // of driver objects: those made, and those that ended
	AllocBytes, FreeBytes     uint64
}

// forgotten is a Forgotten under construction.
type forgotten struct {
	Forgotten
	sums map[forgottenKey]*ForgottenSum
	gpus map[string]bool
}

type forgottenKey struct {
	uuid string
	kind Kind
	host bool
}

// list returns the sums for a snapshot.
func (x *forgotten) list() Forgotten {
	out := x.Forgotten
	for _, s := range x.sums {
		out.Sums = append(out.Sums, *s)
	}
	slices.SortFunc(out.Sums, func(a, b ForgottenSum) int {
		return cmp.Or(cmp.Compare(a.UUID, b.UUID), cmp.Compare(a.Kind, b.Kind), compareBool(a.Host, b.Host))
	})
	return out
}

// sum returns the sum of a GPU and kind.
func (x *forgotten) sum(uuid string, kind Kind, host bool) *ForgottenSum {
	if x.sums == nil {
		x.sums, x.gpus = map[forgottenKey]*ForgottenSum{}, map[string]bool{}
	}
	if host {
		uuid = ""
	}
	if !x.gpus[uuid] && len(x.gpus) >= maxDevices {
		uuid = "" // GPUs are split anew
	}
	x.gpus[uuid] = true
	key := forgottenKey{uuid, kind, host}
	s := x.sums[key]
	if s == nil {
		s = &ForgottenSum{UUID: uuid, Kind: kind, Host: host}
		x.sums[key] = s
	}
	return s
}

// add sums a process that leaves the books.
func (x *forgotten) add(p *process) {
	x.Processes++
	peak := p.highestOf().bytes
	x.Peaks, x.HighestPeak = x.Peaks+peak, max(x.HighestPeak, peak)
	if p.oom != nil {
		x.OutOfMemory += p.oom.Count
	}
	for _, f := range p.failures {
		x.Failures += f.Count
		x.FailedBytes += min(f.Bytes, math.MaxUint64-x.FailedBytes)
	}
	p.spend(4 * len(p.failures))
	uuids := p.uuids()
	device, only := p.onlyGPU(uuids)
	moments := make([]tensorState, len(p.tensors))
	for i := range moments {
		moments[i] = p.stateOf(&p.tensors[i])
	}
	on := func(device int32) string {
		if only == "" && device >= 0 && int(device) < len(uuids) {
			return uuids[device]
		}
		return only
	}
	for _, t := range p.totalsOf(device, moments) {
		s := x.sum(on(t.Device), t.Kind, t.Kind.OnHost() || t.Device == CPUDevice)
		s.AllocObjects += t.AllocObjects
		s.AllocBytes += t.AllocBytes
		s.FreeObjects += minus(t.AllocObjects, t.LiveObjects)
		s.FreeBytes += minus(t.AllocBytes, t.LiveBytes)
	}
	for i := range p.objects.sites {
		o := &p.objects.sites[i]
		s := x.sum(on(o.device), o.kind, false)
		s.AllocObjects += o.made
		s.FreeObjects += o.made - o.live
	}
}
