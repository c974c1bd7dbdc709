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

// forget has processes that ended before a time leave the books.
func (l *Ledger) forget(before uint64) {
	if l.full() {
		return
	}
	l.gone.Before = max(l.gone.Before, before)
	l.purge(max(before, l.newest))
	l.eachAlive(func(uint32) {}) // none of those that leave is among them from now on
	l.spend(len(l.procs))
	var list []uint32
	for n := range l.procs {
		if p := &l.procs[n]; p.purged && p.End < before {
			list = append(list, uint32(n))
		}
	}
	l.forgetGPUs()
	l.renewEndings()
	l.compactEntries()
	if len(list) == 0 {
		return
	}
	leaves := make([]bool, len(l.procs))
	for _, n := range list {
		leaves[n] = true
		l.addGone(n)
	}
	l.forgetFailures(func(process uint32) bool { return leaves[process] })
	l.forgetOwners(func(process uint32) bool { return leaves[process] })
	l.forgetWarnings(func(process uint32) bool { return leaves[process] })
	l.forgetPIDs(list, leaves)
	for _, n := range list {
		l.forgetProcess(n)
	}
	l.giveNumbers(list)
	l.compactSites()
}

// addGone sums a process that leaves the books.
func (l *Ledger) addGone(n uint32) {
	p, x := &l.procs[n], &l.gone
	x.Processes++
	peak := p.highestOf().bytes
	x.Peaks, x.HighestPeak = x.Peaks+peak, max(x.HighestPeak, peak)
	if p.oom != nil {
		x.OutOfMemory += p.oom.Count
	}
	uuids := p.uuids()
	device, only := p.onlyGPU(uuids)
	moments := make([]tensorState, len(p.tensors))
	for i := range moments {
		moments[i] = l.stateOf(&p.tensors[i])
	}
	on := func(device int32) string {
		if only == "" && device >= 0 && int(device) < len(uuids) {
			return uuids[device]
		}
		return only
	}
	for _, t := range (&view{l: l}).totals(p, device, moments) {
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

func (l *Ledger) forgetFailures(leaves func(process uint32) bool) {
	l.spend(4 * len(l.failures))
	for key, f := range l.failures {
		if leaves(key.process) {
			l.gone.Failures += f.Count
			l.gone.FailedBytes += min(f.Bytes, math.MaxUint64-l.gone.FailedBytes)
			delete(l.failures, key)
		}
	}
}

func (l *Ledger) forgetWarnings(leaves func(process uint32) bool) {
	l.warnings = slices.DeleteFunc(l.warnings, func(text string) bool {
		of := l.warned[text]
		if of == none || !leaves(of) {
			return false
		}
		delete(l.warned, text)
		return true
	})
}

// forgetPIDs takes processes out of the lists of those that had the same pid. Since the older ones
// ended earlier, they leave too.
func (l *Ledger) forgetPIDs(list []uint32, leaves []bool) {
	for _, n := range list {
		if pid := l.procs[n].PID; l.byPID[pid] == n {
			delete(l.byPID, pid)
		}
	}
	for n := range l.procs {
		if p := &l.procs[n]; !p.free && p.older != none && leaves[p.older] {
			p.older = none
		}
	}
}

// forgetGPUs drops what GPUs used that NVML does not list any more.
func (l *Ledger) forgetGPUs() {
	for uuid := range l.used {
		if !slices.ContainsFunc(l.gpus, func(g GPU) bool { return g.UUID == uuid }) {
			delete(l.used, uuid)
		}
	}
}

// renewEndings keeps Ledger.endings from passing a site's count of it by half of its range: contexts
// end without an end in a long session.
func (l *Ledger) renewEndings() {
	const far = 1 << 29
	if l.endings-l.renewed < far {
		return
	}
	l.renewed = l.endings
	l.spend(len(l.sites))
	for i := range l.sites {
		if s := &l.sites[i]; l.endings-s.ended > far {
			s.ended = l.endings - far
		}
	}
}

// forgetProcess drops a process that is in no list any more, with all that it holds.
func (l *Ledger) forgetProcess(n uint32) {
	p := &l.procs[n]
	l.spend(64*len(p.sites) + len(p.archived) + len(p.tensors))
	l.limiter.tensors -= uint64(len(p.tensors))
	l.limiter.sites -= uint64(len(p.sites)) + uint64(l.forgetArchived(n))
	for _, s := range p.sites { // of late events
		l.stats.Reused += l.sites[s].early.objects
		l.freeSite(s)
	}
	l.stats.UnknownSizes -= p.unsized
	for t, held := range p.held {
		l.giveAll(table(t), p, int(held))
	}
	l.quotas[tableProcesses].Give()
	if l.processesOf[p.User]--; l.processesOf[p.User] == 0 {
		delete(l.processesOf, p.User)
		delete(l.users, p.User)
	}
	l.procs[n] = process{free: true, older: none}
}

// giveNumbers makes process numbers available to others, and gives memory back if few are in use.
func (l *Ledger) giveNumbers(list []uint32) {
	l.noProcs = append(l.noProcs, list...)
	slices.SortFunc(l.noProcs, func(a, b uint32) int { return cmp.Compare(b, a) })
	used := len(l.procs)
	for used > 0 && l.procs[used-1].free {
		used--
	}
	l.noProcs = slices.DeleteFunc(l.noProcs, func(n uint32) bool { return int(n) >= used })
	clear(l.procs[used:])
	l.procs = l.procs[:used]
	if cap(l.procs) > 4*used+64 {
		l.procs, l.noProcs = slices.Clone(l.procs), slices.Clone(l.noProcs)
	}
}
