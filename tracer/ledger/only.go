// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"
)

// Only returns a copy of a snapshot with the processes that keep reports, and what is theirs. GPUs,
// Stats and Warnings stay those of the session. The copy shares memory with s.
func (s *Snapshot) Only(keep func(*Process) bool) *Snapshot {
	out, index := *s, make([]int, len(s.Processes))
	out.Processes = nil
	for i := range s.Processes {
		index[i] = -1
		if keep(&s.Processes[i]) {
			index[i] = len(out.Processes)
			out.Processes = append(out.Processes, s.Processes[i])
		}
	}
	out.Sites = onlyOf(s.Sites, index, func(x *Site) *int { return &x.Process })
	for i := range out.Sites {
		out.Sites[i].onlyOwners(index)
	}
	out.Failures = onlyOf(s.Failures, index, func(x *Failure) *int { return &x.Process })
	out.Releases = onlyOf(s.Releases, index, func(x *Release) *int { return &x.Process })
	out.Pools = onlyOf(s.Pools, index, func(x *Pool) *int { return &x.Process })
	out.Tensors = onlyOf(s.Tensors, index, func(x *Tensors) *int { return &x.Process })
	out.Objects = onlyOf(s.Objects, index, func(x *Object) *int { return &x.Process })
	out.Walks = onlyOf(s.Walks, index, func(x *Walked) *int { return &x.Process })
	out.Peaks = onlyOf(s.Peaks, index, func(x *Peak) *int { return &x.Process })
	out.Stuck = onlyOf(s.Stuck, index, func(x *Stuck) *int { return &x.Process })
	out.Caches = onlyOf(s.Caches, index, func(x *AllocatorCache) *int { return &x.Process })
	out.Balances = onlyOf(s.Balances, index, func(x *Balance) *int { return &x.Process })
	out.System = onlyOf(s.System, index, func(x *System) *int { return &x.Process })
	if s.Highest != nil {
		out.Highest = s.Highest.Only(keep)
	}
	return &out
}

// onlyOf copies the elements whose process has an index.
func onlyOf[T any](list []T, index []int, process func(*T) *int) (out []T) {
	for i := range list {
		if to := index[*process(&list[i])]; to >= 0 {
			out = append(out, list[i])
			*process(&out[len(out)-1]) = to
		}
	}
	return out
}

// onlyOwners removes owners in other processes, and notes that there are more.
func (s *Site) onlyOwners(index []int) {
	if len(s.Owners) == 0 {
		return
	}
	owners := onlyOf(s.Owners, index, func(x *Owner) *int { return &x.Process })
	s.MoreOwners = s.MoreOwners || len(owners) < len(s.Owners)
	s.Owners = slices.Clip(owners)
}

// AtHighest returns Highest, or the snapshot itself where that is the highest.
func (s *Snapshot) AtHighest() *Snapshot {
	if s.Highest != nil {
		return s.Highest
	}
	return s
}

// Above returns books of the same session in which each running process has what it has in s, or in
// an earlier snapshot if it used more there. All that is live in a process is from one of both.
func (s *Snapshot) Above(earlier *Snapshot) *Snapshot {
	before := indexOf(earlier.Processes)
	was, is := earlier.used(), s.used()
	index := make([]int, len(earlier.Processes)) // in s, of those that used more; else -1
	for i := range index {
		index[i] = -1
	}
	took := make([]bool, len(s.Processes))
	some := false
	for i := range s.Processes {
		p := &s.Processes[i]
		if k, ok := before[p.ID()]; ok && p.End == 0 && earlier.Processes[k].End == 0 && was[k] > is[i] {
			index[k], took[i], some = i, true, true
		}
	}
	if !some {
		return s
	}
	out := *s
	out.Processes = slices.Clone(s.Processes)
	for k, i := range index {
		if i >= 0 {
			out.Processes[i].Totals = earlier.Processes[k].Totals
		}
	}
	out.Sites = ofEither(s.Sites, took, earlier.Sites, index, func(x *Site) *int { return &x.Process })
	slices.SortFunc(out.Sites, compareSites)
	out.Tensors = ofEither(s.Tensors, took, earlier.Tensors, index, func(x *Tensors) *int { return &x.Process })
	slices.SortFunc(out.Tensors, func(a, b Tensors) int {
		return cmp.Or(cmp.Compare(a.Process, b.Process), cmp.Compare(a.Device, b.Device))
	})
	out.Balances = ofEither(s.Balances, took, earlier.Balances, index, func(x *Balance) *int { return &x.Process })
	slices.SortFunc(out.Balances, func(a, b Balance) int {
		return cmp.Or(cmp.Compare(a.Process, b.Process), cmp.Compare(a.UUID, b.UUID))
	})
	out.GPUs = slices.Clone(s.GPUs)
	for i := range out.GPUs {
		g := &out.GPUs[i]
		g.Since += out.usedOn(g.UUID) - s.usedOn(g.UUID)
	}
	return &out
}

// ofEither returns what s has of processes that are not taken from an earlier snapshot, and what
// that has of the others, whose index in s is given.
func ofEither[T any](now []T, took []bool, earlier []T, index []int, process func(*T) *int) []T {
	out := make([]T, 0, len(now))
	for i := range now {
		if !took[*process(&now[i])] {
			out = append(out, now[i])
		}
	}
	return append(out, onlyOf(earlier, index, process)...)
}

// used returns what each process uses on all GPUs: its tensors where PyTorch reports them, else
// what NVML reports, or the books have where NVML lists it on none.
func (s *Snapshot) used() []int64 {
	used, listed := make([]int64, len(s.Processes)), make([]bool, len(s.Processes))
	for i := range s.Balances {
		b := &s.Balances[i]
		used[b.Process] += int64(b.Usage) + b.Since
		listed[b.Process] = true
	}
	for i := range s.Processes {
		for k := range s.Processes[i].Totals {
			if t := &s.Processes[i].Totals[k]; !listed[i] && t.Kind.Owned() {
				used[i] += int64(t.LiveBytes)
			}
		}
	}
	tensors := make([]uint64, len(s.Processes))
	for i := range s.Tensors {
		if t := &s.Tensors[i]; t.Device != CPUDevice {
			tensors[t.Process] += t.Allocated
		}
	}
	for i, bytes := range tensors { // where PyTorch reports them, its segments follow late
		if bytes > 0 {
			used[i] = int64(bytes)
		}
	}
	return used
}

func (s *Snapshot) usedOn(uuid string) (sum int64) {
	for i := range s.Balances {
		if b := &s.Balances[i]; b.UUID == uuid && s.Processes[b.Process].End == 0 {
			sum += int64(b.Usage) + b.Since
		}
	}
	return sum
}

// ProcessID identifies a process across snapshots of a session, also among those that had the same
// pid.
type ProcessID struct {
	PID   uint32
	Begin uint64
}

// ID returns the identity of the process.
func (p *Process) ID() ProcessID { return ProcessID{p.PID, p.Begin} }

// SiteID identifies a site across snapshots of a session. Without a stack, the call tells sites
// apart.
type SiteID struct {
	Process ProcessID
	Stack   uint64
	API     string // "" with a stack
	Kind    Kind
	Device  int32
}

// IDOf returns the identity of a site of the snapshot.
func (s *Snapshot) IDOf(x *Site) SiteID {
	id := SiteID{Process: s.Processes[x.Process].ID(), Stack: x.Stack, Kind: x.Kind, Device: x.Device}
	if x.Stack == 0 {
		id.API = x.API
	}
	return id
}

// indexOf returns where each process stands in the list of a snapshot.
func indexOf(list []Process) map[ProcessID]int {
	index := make(map[ProcessID]int, len(list))
	for i := range list {
		index[list[i].ID()] = i
	}
	return index
}
