// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// maxCaches is how many allocators of a process are shown below the processes.
const maxCaches = 2

// cachesOf returns what PyTorch's allocators of a process have on the chosen GPU, or on all: what their cache is made of,
// and their own counters. The largest caches come first.
func cachesOf(x *scene, p *process) (lines []string) {
	s := x.b.Snapshot
	var list []*ledger.AllocatorCache
	for i := range s.Caches {
		c := &s.Caches[i]
		here := x.gpu == nil || report.GPUUUID(s, c.Process, c.Index, ledger.Tensor) == x.gpu.uuid
		if c.Process == p.index && c.Reserved > 0 && here {
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list, func(a, b *ledger.AllocatorCache) int { return cmp.Compare(b.Cached, a.Cached) })
	width := x.size.width
	for _, c := range list[:min(len(list), maxCaches)] {
		head := "PyTorch's cache on " + format.Device(c.Index, ledger.Tensor) + ": " + format.Bytes(c.Cached) + " of " + format.Bytes(c.Reserved) + " reserved"
		lines = append(lines, x.p.paint(bold, format.Cut(head, width)))
		if text := report.CacheText(c); text != "" {
			lines = append(lines, wrap("  ", text, width)...)
		}
		for _, text := range report.AllocatorTexts(s, c) {
			lines = append(lines, wrap("  ", tidy(text), width)...)
		}
	}
	if n := len(list) - maxCaches; n > 0 {
		lines = append(lines, format.Cut("  "+format.Count(uint64(n), "more allocator"), width))
	}
	return lines
}
