// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"fmt"
	"slices"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// scene is what views and pages are drawn of. Beside it they know only what is their own.
type scene struct {
	b       *books // nil: no data yet
	history        // up to the latest moment
	choice
	filter filter
	p      *palette
	size   screen
}

// history is the time that the screen has seen.
type history struct {
	series    *series
	chronicle *chronicle
}

// take adds a moment, and reports whether something happened in it.
func (h *history) take(b *books) (news bool) {
	h.series.add(b)
	before := h.chronicle.told
	h.chronicle.take(b)
	return h.chronicle.told > before
}

// choice is what Enter chose.
type choice struct {
	process ledger.ProcessID // whose lines and timeline are shown; the zero value: of all
	gpu     *gpuKey          // whose processes are shown; nil: of all
}

// ofOne reports whether a process is chosen.
func (c *choice) ofOne() bool { return c.process != ledger.ProcessID{} }

// screen is how the lines of a terminal are divided: title, loss, GPUs, tabs, body, happening,
// keys.
type screen struct {
	width, height   int
	loss, grows     bool
	tabs, last, key bool
	gpus            int
}

func (s screen) bodyRows() int { return max(s.bodyHeight()-1, 1) } // without the header

func (s screen) bodyHeight() int {
	return max(s.height-1-btoi(s.loss)-btoi(s.grows)-btoi(s.tabs)-btoi(s.last)-btoi(s.key)-s.gpus, 0)
}

// inScope reports of each process whether its lines are shown: those of one, or else of all that
// run, or of all that ended if none runs.
func (x *scene) inScope() []bool {
	s := x.b.Snapshot
	list := make([]bool, len(s.Processes))
	for i := range list {
		p := &s.Processes[i]
		if x.ofOne() {
			list[i] = p.ID() == x.process
		} else {
			list[i] = p.End == 0 || !x.b.alive
		}
	}
	return list
}

func several(scope []bool) bool {
	n := 0
	for _, in := range scope {
		n += btoi(in)
	}
	return n > 1
}

// processText returns "of python3 [42]", "" if no process is chosen.
func (x *scene) processText() string {
	if x.b == nil || !x.ofOne() {
		return ""
	}
	name := fmt.Sprintf("pid %d", x.process.PID)
	if i := slices.IndexFunc(x.b.Snapshot.Processes, func(p ledger.Process) bool { return p.ID() == x.process }); i >= 0 {
		name = processName(x.b, i, 30)
	}
	return "of " + name
}

// nothing returns a line for an empty list.
func (x *scene) nothing(what string) string {
	if x.filter.text != "" {
		what = "nothing matches /" + x.filter.text + "/ (Esc clears it)"
	}
	return x.p.paint(dim, format.Cut("  "+what, x.size.width))
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
