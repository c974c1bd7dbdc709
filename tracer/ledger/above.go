// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"
)

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

// used returns what each process uses on all GPUs: by NVML, or its own books where that lists it on
// none.
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
