// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger/caching"
)

// PoolOrigin is where a private pool of PyTorch got the oldest segment that it still has and whose allocation was seen.
type PoolOrigin struct {
	Pool  caching.PoolID
	Stack uint64
	API   string
	Time  uint64 // of the allocation, ns
}

// poolOrigins returns the origins of the private pools that the latest reading has segments of, by pool.
func (p *process) poolOrigins() (list []PoolOrigin) {
	a := p.allocator
	if !slices.ContainsFunc(a.reading.Arenas, func(x caching.Arena) bool { return x.Pool.Private() }) {
		return nil
	}
	extents := p.extents()
	p.spend(64 * len(a.reading.Segments))
	first := map[caching.PoolID]*extent{}
	for i := range a.reading.Segments {
		s := &a.reading.Segments[i]
		id := a.reading.Arenas[s.Arena].Pool
		if !id.Private() {
			continue
		}
		k, _ := slices.BinarySearchFunc(extents, s.Address, func(x extent, address uint64) int { return cmp.Compare(x.end-1, address) })
		if k == len(extents) || extents[k].start >= s.Address+s.Size || p.sites[extents[k].site].stack == 0 {
			continue
		}
		if x := first[id]; x == nil || extents[k].time < x.time {
			first[id] = &extents[k]
		}
	}
	for id, x := range first {
		s := p.sites[x.site]
		list = append(list, PoolOrigin{Pool: id, Stack: s.stack, API: s.api, Time: x.time})
	}
	slices.SortFunc(list, func(a, b PoolOrigin) int {
		return cmp.Or(cmp.Compare(a.Pool[0], b.Pool[0]), cmp.Compare(a.Pool[1], b.Pool[1]))
	})
	return list
}
