// SPDX-License-Identifier: Apache-2.0

package ledger

// unplaced has the bytes of a process on no GPU that NVML lists.
type unplaced struct{ older, newer uint64 }

// takeUnplaced takes memory on no known GPU off the parts of its process: NVML counts those bytes
// on one of its GPUs. Newer bytes come off Unexplained first and then off Foreign, older ones the
// other way round. The rest is newer than NVML's reading: it is beyond the figure of the first GPU.
func (s *Snapshot) takeUnplaced(parts []Part, beyond []int64, list []unplaced) {
	for from := 0; from < len(parts); {
		to := from + 1
		for to < len(parts) && parts[to].Process == parts[from].Process {
			to++
		}
		x, some := &list[parts[from].Process], parts[from:to]
		if s.gone(some[0].Process) { // NVML counts nothing of it
			some[0].Unlisted += x.older + x.newer
			from = to
			continue
		}
		x.older -= takeShares(some, x.older, ofForeign)
		x.newer -= takeShares(some, x.newer, ofUnexplained)
		x.newer -= takeShares(some, x.newer, ofForeign)
		x.older -= takeShares(some, x.older, ofUnexplained)
		some[0].Unplaced += x.older + x.newer
		beyond[from] = max(beyond[from], 0) + int64(x.older+x.newer)
		from = to
	}
}

// field is one term of a part, with functions to get it and to subtract from it.
type field struct {
	has  func(*Part) uint64
	take func(*Part, uint64)
}

var (
	ofUnexplained = field{func(x *Part) uint64 { return x.Unexplained }, func(x *Part, n uint64) { x.Unexplained -= n }}
	ofForeign     = field{func(x *Part) uint64 { return x.Foreign }, func(x *Part, n uint64) { x.Foreign -= n }}
)

// takeShares subtracts up to sum from the parts, in proportion to what they have, and returns what
// it subtracted.
func takeShares(parts []Part, sum uint64, of field) uint64 {
	weights := make([]uint64, len(parts))
	var all uint64
	for i := range parts {
		weights[i] = min(of.has(&parts[i]), maxSum/uint64(len(parts)))
		all += weights[i]
	}
	sum = min(sum, all)
	shares, _ := apportion(sum, weights)
	for i, n := range shares {
		of.take(&parts[i], n)
		parts[i].Unplaced += n
	}
	return sum
}

// unplaced returns, by process, the bytes of sites and tensors that are shown on no GPU that NVML
// lists; only is the GPU that alone carries each process. Segments count without the tensors in
// them if their allocator reports.
func (s *Snapshot) unplaced(only []string) []unplaced {
	sums := make([]unplaced, len(s.Processes))
	reports, reported := make([]bool, len(s.Processes)), map[processDevice]bool{}
	for i := range s.Tensors {
		t := &s.Tensors[i]
		if t.Device == CPUDevice {
			continue
		}
		reports[t.Process], reported[processDevice{t.Process, t.Device}] = true, true
		if s.balanceOn(t.Process, t.Device, only[t.Process]) < 0 {
			sums[t.Process].newer += t.LiveBytes - t.Asleep + t.Cached
			sums[t.Process].older += t.Older - t.OlderAsleep - t.OlderMoved + t.OlderCached
		}
	}
	for i := range s.Sites {
		x := &s.Sites[i]
		switch {
		case !x.Kind.Owned() || s.balanceOn(x.Process, x.Device, only[x.Process]) >= 0:
		case !x.Segment || !reports[x.Process]:
			sums[x.Process].newer += x.LiveBytes
		case !reported[processDevice{x.Process, x.Device}]:
			sums[x.Process].newer += minus(x.LiveBytes, x.Tensors)
		}
	}
	return sums
}

// bookedSince sets Since of all GPUs, which NVML read last at a time. A GPU with MIG instances has
// their memory.
func (s *Snapshot) bookedSince(read uint64) {
	since := map[string]int64{}
	for i := range s.Balances {
		b := &s.Balances[i]
		switch end := s.Processes[b.Process].End; {
		case end == 0:
			since[b.UUID] += b.Since
		case end > read && b.Time == read:
			since[b.UUID] -= int64(b.Usage)
		}
	}
	s.unreadSince(read, since)
	for i := range s.GPUs {
		if g := &s.GPUs[i]; g.Parent != "" {
			since[g.Parent] += since[g.UUID]
		}
	}
	for i := range s.GPUs {
		s.GPUs[i].Since = since[s.GPUs[i].UUID]
	}
}

// unreadSince adds what processes hold that began after NVML's last reading.
func (s *Snapshot) unreadSince(read uint64, since map[string]int64) {
	for i := range s.Processes {
		p := &s.Processes[i]
		if p.End != 0 || p.Begin <= read {
			continue
		}
		for k := range p.Totals {
			t := &p.Totals[k]
			switch {
			case !t.Kind.Owned():
			case t.Device >= 0 && int(t.Device) < len(p.Devices):
				since[p.Devices[t.Device]] += int64(t.LiveBytes)
			case len(s.GPUs) == 1:
				since[s.GPUs[0].UUID] += int64(t.LiveBytes)
			}
		}
	}
}
