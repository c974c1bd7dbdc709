// SPDX-License-Identifier: Apache-2.0

package purpose

import (
	"slices"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/pools"
	"github.com/vramprof/vramprof/symbolize/callstack"
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
	of := pools.Of(c, d.stacks.st)
	list := ofGraphs(&c.Cache, of)
	var graphs uint64
	for _, p := range list {
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
	d.graphs(rows, c, of, list, shares[0])
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
func ofGraphs(c *caching.Cache, of *pools.Pools) (list []pool) {
	for i := range c.Arenas {
		a := &c.Arenas[i]
		if !of.OfGraphs(a.Pool) || a.Free == 0 {
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

// graphs adds bytes of pools of CUDA graphs, by pool, with the line whose graphs it took most
// memory for, or else the one that first captured into it.
func (d *divider) graphs(rows rowSet, c *ledger.AllocatorCache, of *pools.Pools, list []pool, bytes uint64) {
	weights := make([]uint64, len(list))
	for i, p := range list {
		weights[i] = p.bytes
	}
	shares := apportion(bytes, weights)
	if bytes == 0 || shares == nil {
		return
	}
	lines := map[caching.PoolID]string{}
	if d.stacks.st != nil {
		for _, o := range c.Origins {
			lines[o.Pool] = userLine(frames.Visible(d.stacks.st, o.Stack, o.API), false)
		}
		for _, x := range of.Lines() {
			if len(x.Captured) > 0 {
				lines[x.Pool] = userLine([]callstack.Frame{x.Captured[0].Frame}, false)
			}
		}
	}
	row := rows.row(Graphs, "")
	for i, p := range list {
		row.Bytes += int64(shares[i])
		row.piece(Piece{Part: of.Name(p.id), Line: lines[p.id], Pool: of.Bytes(p.id), Bytes: shares[i]})
	}
}
