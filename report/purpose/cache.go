// SPDX-License-Identifier: Apache-2.0

package purpose

import (
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/caching"
)

// cache divides PyTorch's cache as its allocator was read. What only CUDA graphs get is theirs.
func (d *divider) cache(x *part, rows rowSet, doubt *Doubt) {
	total := x.Cached + x.OlderCached
	if total == 0 {
		return
	}
	row := rows.row(Cache, "")
	c := d.cacheOn(x)
	if c == nil || c.Cached == 0 {
		row.Bytes += int64(total)
		row.piece(Piece{Bytes: total})
		return
	}
	graphs := min(ofGraphs(&c.Cache), c.Private)
	weights := []uint64{graphs}
	for _, k := range report.CacheKinds {
		n := k.Of(&c.Cache)
		if k == report.CachePools {
			n -= graphs
		}
		weights = append(weights, n)
	}
	if c.Cached != total {
		doubt.CacheRead = c.Time
	}
	shares := apportion(total, weights)
	rows.add(Graphs, "", shares[0])
	for i, k := range report.CacheKinds {
		row.Bytes += int64(shares[i+1])
		row.piece(Piece{Cache: k, Bytes: shares[i+1]})
	}
}

// cacheOn returns what was read of the allocator of a part, or nil.
func (d *divider) cacheOn(x *part) *ledger.AllocatorCache {
	for i := range d.s.Caches {
		if c := &d.s.Caches[i]; c.Process == x.Process && d.isOn(x, c.Index) {
			return c
		}
	}
	return nil
}

// ofGraphs returns the free bytes in pools of CUDA graphs: what they captured uses them in each replay.
func ofGraphs(c *caching.Cache) (sum uint64) {
	for i := range c.Arenas {
		if a := &c.Arenas[i]; a.Pool.Private() && a.Pool[1] == 0 {
			sum += a.Free
		}
	}
	return sum
}
