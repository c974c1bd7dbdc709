// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"
)

// maxPeaks is how many processes of a snapshot get a Peak, those with the highest ones.
const maxPeaks = 64

// PeakTimes returns when each process of a snapshot had its peak, and when each of its GPUs had most of
// what the peak is of: at most so many times, those of the highest, in their order.
func PeakTimes(s *Snapshot, most int) []uint64 {
	var list []highest
	torch := map[int]bool{}
	for i := range s.Tensors {
		if t := &s.Tensors[i]; t.Device != CPUDevice && t.Peak > 0 {
			torch[t.Process] = true
			list = append(list, highest{t.Peak, t.PeakTime})
		}
	}
	for i := range s.Processes {
		p := &s.Processes[i]
		list = append(list, highest{p.PeakBytes, p.PeakTime})
		for k := range p.Totals {
			if t := &p.Totals[k]; t.Device >= 0 && t.Kind.Owned() && !torch[i] {
				list = append(list, highest{t.PeakBytes, t.PeakTime})
			}
		}
	}
	list = slices.DeleteFunc(list, func(h highest) bool { return h.bytes == 0 })
	slices.SortStableFunc(list, func(a, b highest) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.time, b.time))
	})
	var times []uint64
	for _, h := range list {
		if len(times) < most && !slices.Contains(times, h.time) {
			times = append(times, h.time)
		}
	}
	slices.Sort(times)
	return times
}

// highestOf returns a process's peak: the kernel half sees every block, the books a sample.
func (p *torch) highestOf() highest {
	most := p.peak.highest
	for i := range p.tensors {
		if t := &p.tensors[i]; t.device != CPUDevice && p.peak.torch {
			most.reach(t.peak.bytes, t.peak.time)
		}
	}
	return most
}

// onOneGPU reports whether the peak leaves out what a process had on further GPUs.
func (p *torch) onOneGPU() bool {
	if !p.peak.torch {
		return p.peak.more
	}
	gpus := 0
	for i := range p.tensors {
		if t := &p.tensors[i]; t.device != CPUDevice && t.peak.bytes > 0 {
			gpus++
		}
	}
	return gpus > 1
}

// measured returns the bytes of a process whose highest value is its peak: its tensors, where
// PyTorch reports them, because segments follow late or never shrink.
func (p *torch) measured() (bytes uint64) {
	torch := false
	for i := range p.tensors {
		if t := &p.tensors[i]; t.device != CPUDevice && t.peak.bytes > 0 {
			torch = true
			bytes += t.now.allocated
		}
	}
	for i := range p.totals {
		if t := &p.totals[i]; !torch && t.Device == allDevices && t.Kind.Owned() {
			bytes += t.LiveBytes
		}
	}
	return bytes
}

// highNow returns what a process has of what its peak is of.
func (p *torch) highNow() (bytes uint64) {
	if p.peak.torch {
		for i := range p.tensors {
			if t := &p.tensors[i]; t.device != CPUDevice {
				bytes = max(bytes, t.now.allocated)
			}
		}
		return bytes
	}
	for i := range p.totals {
		if on := p.totals[i].Device; (on == allDevices) != p.peak.more {
			bytes = max(bytes, p.owned(on))
		}
	}
	return bytes
}
