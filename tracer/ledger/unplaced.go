// SPDX-License-Identifier: Apache-2.0

package ledger

// takeUnplaced takes what sites of no known GPU have off the parts of their process: NVML counts those bytes on one of
// its GPUs. They come off what is unexplained there, then off what was there before the attach; what goes beyond both is of a
// later moment than NVML's reading, as a negative remainder of a known GPU is.
func (s *Snapshot) takeUnplaced(parts []Part, bytes []uint64) {
	for from := 0; from < len(parts); {
		to := from + 1
		for to < len(parts) && parts[to].Process == parts[from].Process {
			to++
		}
		if sum := bytes[parts[from].Process]; sum > 0 {
			takeOff(parts[from:to], sum)
		}
		from = to
	}
}

// takeOff takes a sum off the parts of one process.
func takeOff(parts []Part, sum uint64) {
	sum -= takeShares(parts, sum, func(x *Part) uint64 { return uint64(max(x.Unexplained, 0)) }, func(x *Part, n uint64) { x.Unexplained -= int64(n) })
	sum -= takeShares(parts, sum, func(x *Part) uint64 { return x.Foreign }, func(x *Part, n uint64) { x.Foreign -= n })
	parts[0].Unplaced += sum
	parts[0].Unexplained -= int64(sum)
}

// takeShares takes as much of a sum as there is, from each part by what it has, and returns it.
func takeShares(parts []Part, sum uint64, has func(*Part) uint64, take func(*Part, uint64)) uint64 {
	weights := make([]uint64, len(parts))
	var all uint64
	for i := range parts {
		weights[i] = min(has(&parts[i]), maxSum/uint64(len(parts)))
		all += weights[i]
	}
	sum = min(sum, all)
	shares, _ := apportion(sum, weights)
	for i, n := range shares {
		take(&parts[i], n)
		parts[i].Unplaced += n
	}
	return sum
}

// unplaced sums, by process, what is shown of sites and tensors on no GPU that NVML lists; only is the GPU that carries
// each process alone. Segments are shown without the tensors in them where there is an allocator that reports.
func (s *Snapshot) unplaced(only []string) []uint64 {
	sums := make([]uint64, len(s.Processes))
	reports, reported := make([]bool, len(s.Processes)), map[place]bool{}
	for i := range s.Tensors {
		t := &s.Tensors[i]
		if t.Device == CPUDevice {
			continue
		}
		reports[t.Process], reported[place{t.Process, t.Device}] = true, true
		if s.balanceOn(t.Process, t.Device, only[t.Process]) < 0 {
			sums[t.Process] += t.LiveBytes + t.Cached
		}
	}
	for i := range s.Sites {
		x := &s.Sites[i]
		switch {
		case !x.Kind.Owned() || s.balanceOn(x.Process, x.Device, only[x.Process]) >= 0:
		case !x.Segment || !reports[x.Process]:
			sums[x.Process] += x.LiveBytes
		case !reported[place{x.Process, x.Device}]:
			sums[x.Process] += minus(x.LiveBytes, x.Tensors)
		}
	}
	return sums
}
