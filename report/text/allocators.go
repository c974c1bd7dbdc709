// SPDX-License-Identifier: Apache-2.0

package text

import (
	"strconv"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// allocatorParts writes what the cache of each allocator that was read is made of.
func allocatorParts(p *page, s *ledger.Snapshot, limit int) {
	for i := range s.Caches {
		c := &s.Caches[i]
		if s.Processes[c.Process].End != 0 || c.Reserved == 0 {
			continue
		}
		p.line(plain, 0, "")
		p.list(bold, 0, " ", "What PyTorch's cache is made of:", ownerName(s, c.Process, report.MaxName), "on "+format.Device(c.Index, ledger.Tensor))
		p.line(plain, 0, "")
		p.paragraph("", format.Bytes(c.Reserved)+" reserved = "+format.Bytes(c.Allocated)+" of tensors + "+format.Bytes(c.Cached)+" of cache")
		for _, k := range report.CacheKinds {
			if n := k.Of(&c.Cache); n > 0 {
				p.paragraph(format.Pad("-", siteIndent)+format.Pad(format.Bytes(n), 10), k.Text())
			}
		}
		arenaTable(p, c, limit)
		p.line(plain, 0, "")
		for _, text := range report.AllocatorTexts(s, c) {
			p.paragraph("", text)
		}
	}
}

// arenaTable writes the arenas of a cache, the largest first.
func arenaTable(p *page, c *ledger.AllocatorCache, limit int) {
	streams := report.StreamNames(&c.Cache)
	rows := [][]string{{"pool", "stream", "segments", "reserved", "tensors", "free", "free run"}}
	shown := c.Arenas[:min(len(c.Arenas), limit)]
	for i := range shown {
		a := &shown[i]
		size := ", large"
		if a.Small {
			size = ", small"
		}
		rows = append(rows, []string{report.PoolName(a.Pool), streams[a.Stream] + size, strconv.FormatUint(a.Segments, 10),
			format.Bytes(a.Reserved), format.Bytes(a.Allocated), format.Bytes(a.Free), format.Bytes(a.LargestFree)})
	}
	p.line(plain, 0, "")
	p.table(rows)
	if n := len(c.Arenas) - len(shown); n > 0 {
		p.text(plain, siteIndent, format.Count(uint64(n), "more row"))
	}
}
