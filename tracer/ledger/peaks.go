// SPDX-License-Identifier: Apache-2.0

package ledger

// maxPeaks is how many processes of a snapshot get a Peak, those with the highest ones.
const maxPeaks = 64

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
