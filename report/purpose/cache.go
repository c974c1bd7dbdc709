// SPDX-License-Identifier: Apache-2.0

package purpose

import (
	"slices"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/frames"
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
	pools := ofGraphs(&c.Cache)
	var graphs uint64
	for _, p := range pools {
		graphs += p.bytes
	}
	graphs = min(graphs, c.Private)
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
	d.graphs(rows, c, pools, shares[0])
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

// pool is a pool of a CUDA graph, and its free bytes.
type pool struct {
	id    caching.PoolID
	bytes uint64
}

// ofGraphs returns the free bytes in pools of CUDA graphs, by pool: what they captured uses them in
// each replay.
func ofGraphs(c *caching.Cache) (list []pool) {
	for i := range c.Arenas {
		a := &c.Arenas[i]
		if !a.Pool.Private() || a.Pool[1] != 0 || a.Free == 0 {
			continue
		}
		k := slices.IndexFunc(list, func(p pool) bool { return p.id == a.Pool })
		if k < 0 {
			k = len(list)
			list = append(list, pool{id: a.Pool})
		}
		list[k].bytes += a.Free
	}
	return list
}

// graphs adds bytes of pools of CUDA graphs, by pool, with the line that first captured into it.
func (d *divider) graphs(rows rowSet, c *ledger.AllocatorCache, pools []pool, bytes uint64) {
	weights := make([]uint64, len(pools))
	for i, p := range pools {
		weights[i] = p.bytes
	}
	shares := apportion(bytes, weights)
	if bytes == 0 || shares == nil {
		return
	}
	lines := map[caching.PoolID]string{}
	if d.stacks.st != nil {
		for _, o := range c.Origins {
			lines[o.Pool] = userLine(frames.Visible(d.stacks.st, o.Stack, o.API))
		}
	}
	row := rows.row(Graphs, "")
	for i, p := range pools {
		row.Bytes += int64(shares[i])
		row.piece(Piece{Part: report.PoolName(p.id), Line: lines[p.id], Bytes: shares[i]})
	}
}
