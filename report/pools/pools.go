// SPDX-License-Identifier: Apache-2.0

// Package pools shows whose the private pools of PyTorch's allocator are, and divides those of CUDA
// graphs by what was captured into them.
package pools

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/caching"
)

// Pools are the private pools of one allocator.
type Pools struct {
	cache  *ledger.AllocatorCache
	stacks callstack.Stacks
	shared map[caching.PoolID]bool // made by torch.cuda.graph_pool_handle(), for several graphs
}

// Of returns the pools of an allocator. st may be nil: then no pool has a line.
func Of(c *ledger.AllocatorCache, st callstack.Stacks) *Pools {
	p := &Pools{c, st, map[caching.PoolID]bool{}}
	for i := range c.Origins {
		o := &c.Origins[i]
		k := slices.IndexFunc(c.Captures, func(x ledger.PoolCapture) bool {
			return x.Pool == o.Pool && x.Device == c.Index && x.Time >= o.Time
		})
		if st != nil && k >= 0 && capturedBy(frames.Visible(st, o.Stack, o.API), frames.Visible(st, c.Captures[k].Stack, c.Captures[k].API)) {
			p.shared[o.Pool] = true
		}
	}
	return p
}

// capturedBy reports whether memory was allocated by the function that captured a graph, or below
// it: both stacks have the same callers there.
func capturedBy(memory, graph []callstack.Frame) bool {
	at := slices.IndexFunc(graph, func(f callstack.Frame) bool { return f.Python && !strings.HasSuffix(f.File, "torch/cuda/graphs.py") })
	i := len(memory) - len(graph) + at
	if at < 0 || i < 0 {
		return false
	}
	same := func(f, g callstack.Frame) bool { return f.Function == g.Function && f.File == g.File }
	return same(memory[i], graph[at]) && slices.EqualFunc(memory[i+1:], graph[at+1:], func(f, g callstack.Frame) bool { return same(f, g) && f.Line == g.Line })
}

// OfGraphs reports whether a pool is one of CUDA graphs: replays use what is free there. PyTorch
// gives the pools of graph_pool_handle() and of MemPool ids of the same kind. They differ by
// the oldest segment that the pool still has: the function that captured a graph allocated it.
func (p *Pools) OfGraphs(id caching.PoolID) bool { return id.OfGraph() || p.shared[id] }

// Name names a pool: "default", "CUDA graph 3", "graph pool 1", "MemPool 2".
func (p *Pools) Name(id caching.PoolID) string {
	switch {
	case !id.Private():
		return "default"
	case id.OfGraph():
		return "CUDA graph " + strconv.FormatUint(id[0], 10)
	case id[0] == 0 && p.shared[id]:
		return "graph pool " + strconv.FormatUint(id[1], 10)
	case id[0] == 0:
		return "MemPool " + strconv.FormatUint(id[1], 10)
	}
	return fmt.Sprintf("pool %d.%d", id[0], id[1])
}

// Bytes returns what a pool has from the driver.
func (p *Pools) Bytes(id caching.PoolID) (sum uint64) {
	for i := range p.cache.Arenas {
		if p.cache.Arenas[i].Pool == id {
			sum += p.cache.Arenas[i].Reserved
		}
	}
	return sum
}

// Line is the line of code that a pool is known by.
type Line struct {
	Pool     caching.PoolID
	Frame    callstack.Frame // the headline of the stack that made the oldest segment which the pool still has
	Captured []Captured      // of a pool of CUDA graphs, the line with most bytes first
}

// Captured is what a pool took for the CUDA graphs that one line of code captured into it.
type Captured struct {
	Frame callstack.Frame // the headline of the stack that made the graphs executable: where their capture ended
	Sizes []uint64        // bytes of each graph for which the pool had no room, the largest first
	Bytes uint64          // their sum
}

// Lines returns the lines of the pools that have memory, by pool. A pool is missing whose segments
// are all from before the attach, or have no stack: it is known by its id.
func (p *Pools) Lines() (list []Line) {
	for _, o := range p.cache.Origins {
		if p.stacks != nil && p.Bytes(o.Pool) > 0 {
			list = append(list, Line{o.Pool, p.headline(o.Stack, o.API), p.captured(o.Pool)})
		}
	}
	return list
}

// Captures returns what the pools took for each CUDA graph, by pool and time.
func (p *Pools) Captures() (list []ledger.PoolCapture) {
	for _, x := range p.cache.Captures {
		if x.Device == p.cache.Index && p.OfGraphs(x.Pool) {
			list = append(list, x)
		}
	}
	return list
}

// captured returns what a pool took for CUDA graphs, by line.
func (p *Pools) captured(id caching.PoolID) (list []Captured) {
	for _, x := range p.Captures() {
		if x.Pool != id {
			continue
		}
		f := p.headline(x.Stack, x.API)
		k := slices.IndexFunc(list, func(y Captured) bool {
			return y.Frame.Function == f.Function && y.Frame.File == f.File && y.Frame.Line == f.Line
		})
		if k < 0 {
			k = len(list)
			list = append(list, Captured{Frame: f})
		}
		list[k].Sizes = append(list[k].Sizes, x.Bytes)
		list[k].Bytes += x.Bytes
	}
	for i := range list {
		slices.SortFunc(list[i].Sizes, func(a, b uint64) int { return cmp.Compare(b, a) })
	}
	slices.SortStableFunc(list, func(a, b Captured) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return list
}

// maxSizes is how many sizes of graphs a line shows.
const maxSizes = 4

// Text returns "for 6 CUDA graphs: 24.0 MiB, 8.00 MiB, 2.00 MiB, 2.00 MiB, 2 more".
func (x *Captured) Text() string {
	text := "for " + format.Count(uint64(len(x.Sizes)), "CUDA graph")
	if len(x.Sizes) == 1 {
		return text
	}
	var list []string
	for _, bytes := range x.Sizes[:min(len(x.Sizes), maxSizes)] {
		list = append(list, format.Bytes(bytes))
	}
	if n := len(x.Sizes) - maxSizes; n > 0 {
		list = append(list, fmt.Sprintf("%d more", n))
	}
	return text + ": " + strings.Join(list, ", ")
}

// headline returns the line of code that a stack is known by.
func (p *Pools) headline(stack uint64, api string) callstack.Frame {
	list := frames.Visible(p.stacks, stack, api)
	return list[frames.Headline(list)]
}
