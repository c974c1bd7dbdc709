// SPDX-License-Identifier: Apache-2.0

package ledger

// unplaced is what a process has on no GPU that NVML lists.
type unplaced struct{ older, newer uint64 }

// takeUnplaced takes what is on no known GPU off the parts of its process: NVML counts those bytes on one of
// its GPUs. They come off what is unexplained there, then off what was there before the attach, and what is older the
// other way round; what goes beyond both is of a later moment than NVML's reading, as a negative remainder of a known GPU is.
func (s *Snapshot) takeUnplaced(parts []Part, list []unplaced) {
	for from := 0; from < len(parts); {
		to := from + 1
		for to < len(parts) && parts[to].Process == parts[from].Process {
			to++
		}
		x, some := &list[parts[from].Process], parts[from:to]
		x.older -= takeShares(some, x.older, ofForeign)
		x.newer -= takeShares(some, x.newer, ofUnexplained)
		x.newer -= takeShares(some, x.newer, ofForeign)
		x.older -= takeShares(some, x.older, ofUnexplained)
		some[0].Unplaced += x.older + x.newer
		some[0].Unexplained -= int64(x.older + x.newer)
		from = to
	}
}

// field is one of a part's terms: what it has, and how to take something off.
type field struct {
	has  func(*Part) uint64
	take func(*Part, uint64)
}

var (
	ofUnexplained = field{func(x *Part) uint64 { return uint64(max(x.Unexplained, 0)) }, func(x *Part, n uint64) { x.Unexplained -= int64(n) }}
	ofForeign     = field{func(x *Part) uint64 { return x.Foreign }, func(x *Part, n uint64) { x.Foreign -= n }}
)

// takeShares takes as much of a sum as there is, from each part by what it has, and returns it.
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

// unplaced sums, by process, what is shown of sites and tensors on no GPU that NVML lists; only is the GPU that carries
// each process alone. Segments are shown without the tensors in them where there is an allocator that reports.
func (s *Snapshot) unplaced(only []string) []unplaced {
	sums := make([]unplaced, len(s.Processes))
	reports, reported := make([]bool, len(s.Processes)), map[place]bool{}
	for i := range s.Tensors {
		t := &s.Tensors[i]
		if t.Device == CPUDevice {
			continue
		}
		reports[t.Process], reported[place{t.Process, t.Device}] = true, true
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
		case !reported[place{x.Process, x.Device}]:
			sums[x.Process].newer += minus(x.LiveBytes, x.Tensors)
		}
	}
	return sums
}
