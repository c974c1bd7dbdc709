// SPDX-License-Identifier: Apache-2.0

package purpose

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/internal/lazyregexp"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// owner is whose some memory is that did not come from PyTorch's allocator.
type owner struct {
	rowKey
	part, line string // see Piece
}

// driver divides what was allocated from CUDA beside PyTorch's cache, by the library that asked for
// it and the line of the user's code below it.
func (d *divider) driver(x *part, rows rowSet) {
	reports := report.ReportTensors(d.s)
	found := map[owner]*Piece{}
	var sum uint64
	for i := range d.s.Sites {
		site := &d.s.Sites[i]
		if site.Process != x.Process || !site.Kind.Owned() || site.LiveBytes == 0 || !d.isOn(x, site.Device) && !d.isOnly(x, site) {
			continue
		}
		if site.Segment && reports[site.Process] {
			continue
		}
		key := d.ownerOf(site)
		if found[key] == nil {
			found[key] = &Piece{Part: key.part, Line: key.line, Idle: idles[[2]string{key.library, key.part}]}
		}
		found[key].Bytes += site.LiveBytes
		found[key].Count += site.LiveObjects
		sum += site.LiveBytes
	}
	total := x.Driver
	if !x.read {
		total = sum
	}
	keys := sortedOwners(found)
	weights := make([]uint64, len(keys))
	for i, key := range keys {
		weights[i] = found[key].Bytes
	}
	switch {
	case sum > total:
		weights = apportion(total, weights)
	case sum < total:
		rest := rows.row(CUDA, "")
		rest.Bytes += int64(total - sum)
		rest.piece(Piece{Bytes: total - sum})
	}
	for i, key := range keys {
		if len(weights) > i && weights[i] > 0 {
			row, piece := rows.row(key.kind, key.library), *found[key]
			row.Bytes += int64(weights[i])
			piece.Bytes = weights[i]
			if piece.HasName() {
				row.Pieces = append(row.Pieces, piece) // its name is new there
			} else {
				row.piece(piece)
			}
		}
	}
}

// rounding adds what the driver holds beyond the bytes of allocations: pools of cudaMallocAsync and
// of graphs may hold memory that nothing uses.
func (d *divider) rounding(x *part, rows rowSet) {
	rows.add(Rounding, "", x.Rounding)
	if idle := report.PartIdle(d.s, &x.Part); idle > 0 {
		row := rows.row(Rounding, "")
		row.piece(Piece{Part: "idle in pools, at most", Bytes: idle})
		row.piece(Piece{Part: "other rounding, at least", Bytes: x.Rounding - idle})
	}
}

func sortedOwners(found map[owner]*Piece) (keys []owner) {
	for key := range found {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b owner) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.library, b.library), cmp.Compare(a.part, b.part), cmp.Compare(a.line, b.line))
	})
	return keys
}

// isOnly reports whether a site whose device is unknown is on the only GPU of its process.
func (d *divider) isOnly(x *part, site *ledger.Site) bool {
	b := d.s.BalanceOf(site.Process, site.Device)
	return b >= 0 && d.s.Balances[b].UUID == x.UUID
}

// makesContext are calls that take memory for a context, whoever calls them.
var makesContext = lazyregexp.New(`^cu(DevicePrimaryCtxRetain|CtxCreate)`)

// makesGraph are calls in which the driver takes memory for executables of graphs. cuGraphUpload
// has no probe: only the stack shows it.
var makesGraph = lazyregexp.New(`^cu(da)?Graph(Instantiate|Upload|Launch)`)

// Parts of what is no library's alone.
const (
	driverObjects = "driver's own" // of a library: what the driver took: modules, mostly
	executables   = "graph executables"
	allocNodes    = "alloc nodes"
)

// ownerOf returns whose a site is.
func (d *divider) ownerOf(site *ledger.Site) (o owner) {
	o.kind = CUDA
	switch {
	case site.Kind == ledger.Graph:
		o.kind = Graphs
	case site.Kind == ledger.Internal:
		o.kind = Context
	}
	if d.stacks.st == nil {
		return o
	}
	stack := frames.Visible(d.stacks.st, site.Stack, site.API)
	o.line = userLine(stack, false)
	own := driverObjects
	switch {
	case o.kind == Graphs:
		o.part = allocNodes
		return o
	case o.kind == Context && makesContext.MatchString(site.API):
		return o
	case o.kind == Context && ofExecutable(site.API, stack):
		own = executables
		o.kind, o.part = Graphs, executables
	}
	r := ownerOfStack(stack, d.stacks.rules)
	if r.nameRule == nil {
		return o
	}
	o.line = userLine(stack[r.last:], true)
	switch {
	case o.kind == CUDA:
		o.rowKey, o.part = rowKey{r.kind, r.name}, r.part
	case r.kind == Library: // modules that it loaded
		o.rowKey, o.part = rowKey{Library, r.name}, own
	}
	return o
}

// ofExecutable reports whether the driver took memory for the executable of a graph.
func ofExecutable(api string, stack []callstack.Frame) bool {
	return makesGraph.MatchString(api) || slices.ContainsFunc(stack, func(f callstack.Frame) bool {
		return !f.Python && makesGraph.MatchString(f.Function)
	})
}

// userLine returns "load (serve.py:12)": the user's own code that a stack comes from, or else a
// line of Python; "" if it has neither. The first frame of a library is not the user's code, also
// where the library is linked into the user's program.
func userLine(stack []callstack.Frame, library bool) string {
	at := frames.Headline(stack)
	f := &stack[at]
	if !f.Python && (!frames.IsUser(f) || library && at == 0) {
		return ""
	}
	return lineOf(f, f.Line)
}
