// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
)

// WriteHolderTree writes who keeps the tensors of a process as a tree of the steps of paths. Steps
// without a fork are one line.
func WriteHolderTree(w io.Writer, h *report.Holders, o report.Options, screen Screen) error {
	p := newPage(screen)
	p.holdersHead(h, h.Lines())
	for _, tree := range h.Trees() {
		t := holderTree{page: p, top: o.Limit(), total: tree.Bytes, between: h.Between()}
		title := fmt.Sprintf("Who keeps %s on %s", format.Bytes(tree.Bytes), tree.Name)
		if h.Before != nil {
			title += ", and the difference from " + t.between.Round(100*time.Millisecond).String() + " before"
		}
		p.line(plain, 0, "")
		p.text(bold, 0, title)
		p.line(plain, 0, "")
		t.children(tree, 0, nil)
	}
	p.holdersFoot(h)
	return p.writeTo(w)
}

type holderTree struct {
	*page
	top     int
	total   uint64        // bytes of the tree
	between time.Duration // of two walks; 0: one walk
}

// children writes the largest nodes below one, and what it keeps itself: lines of one depth add up
// to the line above.
func (t *holderTree) children(n *report.HolderNode, depth int, above *report.HolderNode) {
	list := n.Live()
	if above != nil && n.Own > 0 && len(list) > 0 {
		t.row(plain, depth, "itself", &report.HolderNode{Bytes: n.Own, Storages: n.OwnCount, Grown: n.OwnGrown})
	}
	rest, shown := new(report.HolderNode), 0
	for _, c := range list {
		if shown == t.top || t.small(c) && (above != nil || shown >= leastBranches) {
			rest.Bytes += c.Bytes
			rest.Storages += c.Storages
			rest.Grown.Bytes += c.Grown.Bytes
			continue
		}
		shown++
		t.chain(c, depth)
	}
	if shown < len(list) {
		t.row(dim, depth, humanize.Comma(int64(len(list)-shown))+" more", rest)
	}
}

// leastBranches are shown of a tree however small they are.
const leastBranches = 5

// small reports whether a branch has too little to be shown, and does not grow.
func (t *holderTree) small(n *report.HolderNode) bool {
	return float64(n.Bytes) < leastShare*float64(t.total) && n.Grown.Bytes <= 0
}

// chain writes a node and its only descendants up to the next fork as one path.
func (t *holderTree) chain(n *report.HolderNode, depth int) {
	name, place, first := n.Name, n.Place, n
	for list := n.Live(); len(list) == 1 && n.Own == 0; list = n.Live() {
		n = list[0]
		name += n.Name
	}
	t.row(plain, depth, strings.TrimLeft(name, " ")+place, first)
	t.children(n, depth+1, first)
}

// rate is "+560 MiB/min"; "" for what did not grow.
func (t *holderTree) rate(n *report.HolderNode) string {
	if t.between <= 0 || n.Grown.Bytes == 0 {
		return ""
	}
	return format.Difference(report.PerMinute(n.Grown.Bytes, uint64(t.between))) + "/min"
}

// row writes figures and a path beside them, or below them where there is no room. A path is
// broken, never cut.
func (t *holderTree) row(s Style, depth int, path string, n *report.HolderNode) {
	figures := format.Pad(format.Bytes(n.Bytes), -8) + "  " + format.Pad(humanize.Comma(int64(n.Storages)), -7) + "  "
	if t.between > 0 {
		figures += format.Pad(t.rate(n), -13) + "  "
	}
	if room := t.width - format.Width(figures); room >= leastHolder {
		depth = min(depth, (room-narrowFrame)/2)
		for _, piece := range pieces(path, room-2*depth) {
			t.line(s, 0, figures+strings.Repeat("  ", depth)+strings.TrimLeft(piece, " "))
			figures = format.Pad("", format.Width(figures))
		}
		return
	}
	depth = min(depth, max(t.width-narrowFrame, 0)/2)
	for _, piece := range pieces(path, t.width-2*depth) {
		t.line(s, 2*depth, strings.TrimLeft(piece, " "))
	}
	t.list(dim, min(2*depth+siteIndent, t.width-minWidth), ", ", format.Bytes(n.Bytes)+" in "+format.Count(n.Storages, "storage"), t.rate(n))
}
