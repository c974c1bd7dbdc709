// SPDX-License-Identifier: Apache-2.0

package export

import (
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Marks are frames in place of a stack that is unknown or cut off.
const (
	markNotSampled = "[not sampled]"
	markSegment    = "[before attach: pytorch segment]"
)

// Values of "stream". The viewer joins adjacent mappings on one stream, and must not join them with
// other memory. vramprof does not see on which CUDA stream memory is used.
const (
	streamWhole  = 0
	streamMapped = 1
)

// torch is a snapshot that is written.
type torch struct {
	frameLists
	s        *space
	snapshot *ledger.Snapshot
	process  int // index in Snapshot.Processes, or -1
	st       callstack.Stacks

	reports bool         // PyTorch's allocator is traced, so that free space in segments is known
	unknown int32        // number that stands for the unknown device
	kept    *report.Kept // nil without a walk
	entries []int        // number of entries of the trace, by device
	listed  []listedBlock
}

func (t *torch) learned(id uint32, device int32) int32 {
	if device >= 0 {
		return device
	}
	if d, ok := t.s.learned[id]; ok {
		return d
	}
	return device
}

// device returns the device that a segment or entry is shown on.
func (t *torch) device(id uint32, device int32) int32 {
	if d := t.learned(id, device); d >= 0 {
		return d
	}
	return t.unknown
}

// hosts reports whether a segment is PyTorch's, so that its blocks are tensors.
func (t *torch) hosts(c class, stack uint64, api string) bool {
	return c == older || c == found || t.reports && t.s.hosts[siteKey{stack, api}]
}
