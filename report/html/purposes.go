// SPDX-License-Identifier: Apache-2.0

package html

import (
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/purpose"
)

// Limits of what a page shows of purposes.
const (
	maxPurposes      = 64 // processes and GPUs, the largest first
	maxPurposePieces = 8  // of a row
)

// purposes returns what the memory of processes is for: of those that run, then of those that have
// ended.
func (b *builder) purposes() []purposeData {
	out := []purposeData{}
	all := purpose.Of(b.s, b.in.Stacks)
	for _, i := range purpose.BySize(all) {
		if x := &all[i]; x.Divided() && len(out) < maxPurposes {
			out = append(out, b.purpose(x, -1, x.Notes(b.s)))
		}
	}
	for i := range b.in.Past {
		if x := &b.in.Past[i]; x.Divided() && len(out) < maxPurposes && x.Process < len(b.s.Processes) {
			out = append(out, b.purpose(&x.Balance, int64(since(x.Time, b.s.Begin)), x.Notes))
		}
	}
	return out
}

func (b *builder) purpose(x *purpose.Balance, time int64, notes []string) purposeData {
	p := purposeData{Process: x.Process, GPU: b.gpu(x.UUID, x.Device), Time: time, Title: shorten(x.Title(b.s)), Bytes: x.Bytes, Rows: []purposeRow{}, Notes: list(notes)}
	rows, _, _ := x.Largest(len(x.Rows))
	for k := range rows {
		r := &rows[k]
		row := purposeRow{Kind: string(r.Kind), Name: r.Name(), Bytes: r.Bytes, Known: r.Known()}
		row.Pieces = purposePieces(r)
		p.Rows = append(p.Rows, row)
	}
	return p
}

// purposePieces returns the largest parts of a row, and the sum of the others: all of it.
func purposePieces(r *purpose.Row) (list []purposePiece) {
	if len(r.Pieces) == 1 && !r.Pieces[0].HasName() {
		return nil
	}
	var rest purposePiece
	for i := range r.Pieces {
		if x := &r.Pieces[i]; i < maxPurposePieces {
			list = append(list, purposePiece{shorten(x.Name(r.Kind)), x.Bytes})
		} else {
			rest.Bytes += x.Bytes
		}
	}
	if rest.Bytes > 0 {
		rest.Name = format.Count(uint64(len(r.Pieces)-maxPurposePieces), "more part")
		list = append(list, rest)
	}
	return list
}
