// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// CallCount sums the allocations of one function.
type CallCount struct {
	API, Kind            string
	Allocs, Bytes, Freed uint64
}

// CallCounts returns the mix of calls, most bytes first. If before is not nil, only calls after it
// count.
func CallCounts(s, before *ledger.Snapshot) []CallCount {
	at := map[[2]string]int{}
	var list []CallCount
	sum := func(x *ledger.Site) *CallCount {
		key := [2]string{untrusted.Clean(x.API), format.Kind(x.Kind)}
		k, ok := at[key]
		if !ok {
			k = len(list)
			at[key] = k
			list = append(list, CallCount{API: key[0], Kind: key[1]})
		}
		return &list[k]
	}
	for i := range s.Sites {
		x := &s.Sites[i]
		c := sum(x)
		c.Allocs += x.AllocObjects
		c.Bytes += x.AllocBytes
		c.Freed += Minus(x.AllocObjects, x.LiveObjects)
	}
	if before != nil {
		for i := range before.Sites {
			x := &before.Sites[i]
			c := sum(x)
			c.Allocs = Minus(c.Allocs, x.AllocObjects)
			c.Bytes = Minus(c.Bytes, x.AllocBytes)
			c.Freed = Minus(c.Freed, Minus(x.AllocObjects, x.LiveObjects))
		}
		list = slices.DeleteFunc(list, func(c CallCount) bool { return c.Allocs+c.Freed == 0 })
	}
	slices.SortFunc(list, func(a, b CallCount) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.API, b.API), cmp.Compare(a.Kind, b.Kind))
	})
	return list
}

// Churn is a site that keeps allocating and freeing.
type Churn struct {
	Site                      *ledger.Site
	Freed                     uint64 // objects
	Allocs, Bytes, FreedBytes uint64 // allocations, their bytes, and the bytes freed
}

func churnOf(x *ledger.Site) Churn {
	return Churn{x, Minus(x.AllocObjects, x.LiveObjects), x.AllocObjects, x.AllocBytes, Minus(x.AllocBytes, x.LiveBytes)}
}

// churnKey identifies a site across the snapshots of a session.
type churnKey struct {
	pid    uint32
	begin  uint64
	stack  uint64
	api    string
	kind   ledger.Kind
	device int32
}

func churnKeyOf(s *ledger.Snapshot, x *ledger.Site) churnKey {
	p := &s.Processes[x.Process]
	return churnKey{p.PID, p.Begin, x.Stack, x.API, x.Kind, x.Device}
}

// leastChurn is the least number of frees that makes a site worth a line.
const leastChurn = 16

// Churning lists the sites that keep allocating and freeing, most freed bytes first. Tensors do not
// count: reusing their memory is what PyTorch's allocator is for. If before is not nil, only calls
// after it count.
func Churning(s, before *ledger.Snapshot) []Churn {
	earlier := map[churnKey]Churn{}
	if before != nil {
		for i := range before.Sites {
			x := &before.Sites[i]
			earlier[churnKeyOf(before, x)] = churnOf(x)
		}
	}
	var list []Churn
	for i := range s.Sites {
		x := &s.Sites[i]
		c, old := churnOf(x), earlier[churnKeyOf(s, x)]
		c.Freed, c.FreedBytes = Minus(c.Freed, old.Freed), Minus(c.FreedBytes, old.FreedBytes)
		c.Allocs, c.Bytes = Minus(c.Allocs, old.Allocs), Minus(c.Bytes, old.Bytes)
		if c.Freed >= leastChurn && x.Kind != ledger.Tensor && InSums(x.Kind) {
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list, func(a, b Churn) int { return cmp.Compare(b.FreedBytes, a.FreedBytes) })
	return list
}
