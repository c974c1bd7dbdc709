// SPDX-License-Identifier: Apache-2.0

package ledger

import "slices"

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
