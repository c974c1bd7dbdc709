// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// A child that only forks shares what PyTorch's allocator of its parent had, and gives it back when its interpreter ends: a
// worker of a data loader reports frees, with all of its parent's totals. Such a child has no CUDA of its own, and so no
// allocator on a GPU. It is one from its first allocation on, if it ever makes one.

// maxInherited bounds the first reports that wait: a process has few GPUs.
const maxInherited = 16

// hasCUDA says whether a process uses CUDA itself: it has allocated from the driver, or NVML lists it; in a turn. Where NVML says
// nothing that is not known of one that was there before us.
func (t *Tracer) hasCUDA(p *process) bool {
	if p.user || t.usage.Lists(p.pid) {
		return true
	}
	if t.usage.HasGPUs() {
		return false
	}
	if !p.dated {
		began := procfs.StartTime(p.pid)
		p.dated, p.older = true, began != 0 && began < t.begin.Load()
	}
	return p.older
}

// inherits says whether what an allocator on a GPU reports is of its parent's: as long as the process has no CUDA of its own, and has
// allocated nothing. The first report is kept until there is more to be said; in a turn.
func (t *Tracer) inherits(p *process, e *ledger.Event) bool {
	switch {
	case e.Device < 0 || len(p.inherited) == 0 && e.Op != ledger.Allocator:
		return false
	case e.Op == ledger.Alloc || t.hasCUDA(p):
		t.disinherit(p)
		return false
	case e.Op == ledger.Allocator && len(p.inherited) < maxInherited:
		p.inherited = append(p.inherited, *e)
	}
	return true
}

// disinherit books the first reports of a process that uses CUDA itself, after all; in a turn.
func (t *Tracer) disinherit(p *process) {
	for i := range p.inherited {
		t.turn.Apply(&p.inherited[i])
	}
	p.inherited = nil
}

// inherited says whether an allocator is none but its parent's, by what the kernel half has of it; in a turn.
func (t *Tracer) inherited(p *process, device int32, value *bpf.TensorDevice) bool {
	if device < 0 {
		return false
	}
	allocated := value.Unbooked > 0
	for i := range value.Classes {
		allocated = allocated || value.Classes[i].Allocs > 0
	}
	if !allocated && !t.hasCUDA(p) {
		return true
	}
	t.disinherit(p)
	return false
}
