// SPDX-License-Identifier: Apache-2.0

package purpose

import (
	"cmp"
	"regexp"
	"slices"

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
			found[key] = &Piece{Part: key.part, Line: key.line}
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
var makesContext = regexp.MustCompile(`^cu(DevicePrimaryCtxRetain|CtxCreate)`)

// driverObjects is the part of a library that the driver took: modules, mostly.
const driverObjects = "driver's own"

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
	o.line = userLine(stack)
	if o.kind == Graphs || o.kind == Context && makesContext.MatchString(site.API) {
		return o
	}
	r := ownerOfStack(stack)
	switch {
	case r == nil:
	case o.kind == CUDA:
		o.rowKey, o.part = rowKey{r.kind, r.name}, r.part
	case r.kind == Library: // modules that it loaded
		o.rowKey, o.part = rowKey{Library, r.name}, driverObjects
	}
	return o
}

// userLine returns "load (serve.py:12)": the user's own code that a stack comes from, or else a
// line of Python; "" if it has neither.
func userLine(stack []callstack.Frame) string {
	f := &stack[frames.Headline(stack)]
	if !f.Python && !frames.IsUser(f) {
		return ""
	}
	return lineOf(f, f.Line)
}
