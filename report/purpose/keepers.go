// SPDX-License-Identifier: Apache-2.0

package purpose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

// keepers has the bytes of each kind by holder: indexes of Walked.Held.
type keepers map[Kind]map[int]uint64

func (k keepers) add(kind Kind, holder int, bytes uint64) {
	if bytes == 0 {
		return
	}
	if k[kind] == nil {
		k[kind] = map[int]uint64{}
	}
	k[kind][holder] += bytes
}

// enter gives rows their holders, the largest first.
func (k keepers) enter(rows rowSet, w *ledger.Walked) {
	for kind, by := range k {
		row := rows.row(kind, "")
		for i, bytes := range by {
			if w.Held[i].Path != report.NoHolder {
				row.KeptBy = append(row.KeptBy, report.HeldShare{Line: report.LineOf(&w.Held[i]), Bytes: bytes})
			}
		}
		slices.SortFunc(row.KeptBy, func(a, b report.HeldShare) int {
			return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Line.Path, b.Line.Path), cmp.Compare(a.Line.Device, b.Line.Device))
		})
	}
}

const (
	almostAll  = 0.95 // of a row's bytes: no share is named
	leastNamed = 0.01 // of a row's bytes: another one keeps nearly all
)

// KeptText returns who keeps a row: "kept by trainer.history, list of 435", "kept by the graph of
// loss in main() (train.py:7)", "61% kept by model". Where many holders keep it, they are named by
// what most of their paths lead through. It returns "" where no holder is known.
func (r *Row) KeptText() string {
	if len(r.KeptBy) == 0 || r.Bytes <= 0 {
		return ""
	}
	var sum uint64
	for i := range r.KeptBy {
		sum += r.KeptBy[i].Bytes
	}
	some, bytes := r.KeptBy[:1], r.KeptBy[0].Bytes
	for float64(bytes) < almostAll*float64(sum) {
		bytes += r.KeptBy[len(some)].Bytes
		some = r.KeptBy[:len(some)+1]
	}
	name := nameOf(some)
	if name == "" {
		some, bytes = r.KeptBy[:1], r.KeptBy[0].Bytes
		name = cmp.Or(nameOf(some), some[0].Line.Path)
	}
	share := float64(bytes) / float64(r.Bytes)
	if share < leastNamed {
		return ""
	}
	text := "kept by " + name
	if share < almostAll {
		text = fmt.Sprintf("%.0f%% %s", 100*share, text)
	}
	if more := report.ContainerText(some[0].Line); more != "" && len(some) == 1 {
		text += ", " + more
	}
	return text
}

// inGraph follows a piece of a path that goes through an autograd graph.
const inGraph = " (autograd graph)"

// nameOf returns what all paths lead through, "" if that is only where they begin.
func nameOf(list []report.HeldShare) string {
	first := list[0].Line
	frames := slices.Clone(first.Frames)
	graph, place := first.Retention.Has(retention.Graph), ""
	for i := range frames {
		frames[i] = strings.ReplaceAll(frames[i], inGraph, "")
	}
	for _, x := range list[1:] {
		n := 0
		for n < min(len(frames), len(x.Line.Frames)) && frames[n] == strings.ReplaceAll(x.Line.Frames[n], inGraph, "") {
			n++
		}
		frames = frames[:n]
		graph = graph && x.Line.Retention.Has(retention.Graph)
	}
	if len(frames) == 0 {
		return ""
	}
	switch {
	case beginsInFunction(first.Path):
		place, frames = " in "+frames[0], frames[1:]
	case frames[0] == "__main__":
		frames = frames[1:]
	case len(frames) == 1 && len(first.Frames) > 1: // a module
		return ""
	}
	if len(frames) == 0 {
		return ""
	}
	name := frames[0]
	for _, f := range frames[1:] {
		if !strings.HasPrefix(f, "[") {
			name += "."
		}
		name += f
	}
	if len(list) == 1 && first.Containers > 0 { // which is named behind it
		name = strings.TrimSuffix(name, "[*]")
	}
	if graph {
		name = "the graph of " + name
	}
	return name + place
}

// beginsInFunction reports whether a path begins at a variable or a value of a function, which is
// the first of its frames.
func beginsInFunction(path string) bool {
	for _, root := range [...]string{"local", "temporary", "globals"} {
		if rest, is := strings.CutPrefix(path, root); is && strings.Contains(rest, " of ") {
			return rest == "" || strings.ContainsRune(` ".[`, rune(rest[0]))
		}
	}
	return false
}
