// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/tracer/holders"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Holders is what one or two walks of a process found: who keeps its tensors.
type Holders struct {
	PID    uint32
	Comm   string          // name of the process
	Before *holders.Result // an earlier walk; nil: only one was made
	Result *holders.Result
	Device string // "cuda:0": only this device; "": all
}

// HolderLine is what one holder keeps on one device.
type HolderLine struct {
	ledger.Held
	On    string   // the device as PyTorch names it: "cuda:0", "cpu"
	Steps []string // of the path, of a walk beside a session: see holders.Line
	Place string   // likewise
	// The function of Place, and the line that it executed; 0: unknown.
	Function string
	Now      int
}

// GrownLine is a holder that keeps more than at an earlier walk.
type GrownLine struct {
	HolderLine // as of the later walk
	By         ledger.HeldGrowth
	PerMinute  int64 // bytes
}

// Remedy returns what to do about a container that grows, "" if it is none.
func (g *GrownLine) Remedy() string {
	if !g.Found || g.By.Entries <= 0 {
		return ""
	}
	return verdict.Remedy(&g.Holder)
}

// Lines returns the holders on the chosen devices, the largest first.
func (h *Holders) Lines() []HolderLine { return h.linesOf(h.Result) }

func (h *Holders) linesOf(r *holders.Result) (list []HolderLine) {
	for _, l := range r.Lines() {
		if h.Device == "" || l.Device == h.Device {
			list = append(list, holderLine(&l))
		}
	}
	return list
}

func holderLine(l *holders.Line) HolderLine {
	device := int32(ledger.UnknownDevice)
	if n, err := strconv.ParseInt(strings.TrimPrefix(l.Device, "cuda:"), 10, 32); err == nil {
		device = int32(n)
	} else if l.Device == "cpu" {
		device = ledger.CPUDevice
	}
	return HolderLine{
		Held: ledger.Held{
			Holder: ledger.Holder{
				Device: device, Path: l.Holder, Class: l.Class, Also: l.Also, Container: l.Container, Containers: l.Containers, Entries: l.Entries, Found: l.Found, Retention: l.Retention, Parts: l.Parts, Thing: l.Thing, Many: l.Many,
			},
			Bytes: l.Bytes, Storages: l.Storages, InMotion: l.InMotion,
		},
		On: l.Device, Steps: l.Path, Place: l.Place, Function: l.Function, Now: l.Now,
	}
}

// Grown returns the lines that grew between the walks, the fastest first.
func (h *Holders) Grown() []GrownLine {
	if h.Before == nil {
		return nil
	}
	return grownLines(h.linesOf(h.Before), h.Lines(), h.Between())
}

// grownLines returns what grew between two walks that are some time apart.
func grownLines(before, after []HolderLine, between time.Duration) []GrownLine {
	held := func(lines []HolderLine) (list []ledger.Held) {
		for i := range lines {
			list = append(list, lines[i].Held)
		}
		return list
	}
	var list []GrownLine
	for _, g := range ledger.Grown(held(before), held(after)) {
		list = append(list, GrownLine{after[g.Index], g, PerMinute(g.Bytes, uint64(between))})
	}
	return list
}

// Trees returns the holders on each of the chosen devices as a tree, the device with the most bytes
// first.
func (h *Holders) Trees() []*HolderNode {
	sums := map[string]uint64{}
	for _, l := range h.Lines() {
		sums[l.On] += l.Bytes
	}
	trees := make([]*HolderNode, 0, len(sums))
	for device := range sums {
		trees = append(trees, HolderTree(h.Result, h.Before, device))
	}
	slices.SortFunc(trees, func(a, b *HolderNode) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name))
	})
	return trees
}

// Between returns the time between the walks; 0 if there was only one.
func (h *Holders) Between() time.Duration {
	if h.Before == nil {
		return 0
	}
	return max(h.Result.At.Sub(h.Before.At), 0)
}

// HoldersSum adds up lines.
type HoldersSum struct{ Bytes, Storages, Found, InMotion uint64 }

// SumHolders adds up lines; Found are the bytes that a path in Python holds.
func SumHolders(list []HolderLine) (sum HoldersSum) {
	for i := range list {
		sum.Bytes += list[i].Bytes
		sum.Storages += list[i].Storages
		sum.InMotion += list[i].InMotion
		if list[i].Found {
			sum.Found += list[i].Bytes
		}
	}
	return sum
}

// DetailText describes what is known of a line besides its path: "list of 435, 1.50 GiB from before
// the attach, main() is at line 61".
func DetailText(l *HolderLine) string {
	parts := []string{ContainerText(l)}
	switch {
	case l.Older == 0:
	case l.Older == l.Bytes:
		parts = append(parts, "from before the attach")
	default:
		parts = append(parts, format.Bytes(l.Older)+" from before the attach")
	}
	if l.Now > 0 {
		parts = append(parts, fmt.Sprintf("%s is at line %d", l.Function, l.Now))
	}
	return strings.TrimPrefix(strings.Join(parts, ", "), ", ")
}

// ContainerText describes the innermost containers of a line: "list of 1,204", "4 dicts with 12
// entries"; "" without one.
func ContainerText(l *HolderLine) string {
	switch {
	case l.Containers == 0:
		return ""
	case l.Entries < 0:
		return format.Count(uint64(l.Containers), l.Container)
	case l.Containers == 1:
		return fmt.Sprintf("%s of %s", l.Container, humanize.Comma(int64(l.Entries)))
	}
	return fmt.Sprintf("%s with %s", format.Count(uint64(l.Containers), l.Container), format.Count(uint64(l.Entries), "entry"))
}

// HolderProblems returns what the walks could not read, and doubts about their figures.
func (h *Holders) HolderProblems() []string {
	list := append([]string(nil), h.Result.Problems...)
	if n := SumHolders(h.Lines()).InMotion; n > 0 {
		list = append(list, inMotionText(n))
	}
	if h.Result.Automatic == holders.AutomaticOff && h.Result.Loose > 0 {
		list = append(list, "Python's garbage collector does not run by itself: objects in cycles stay until gc.collect()")
	}
	return list
}

func inMotionText(n uint64) string {
	return format.Count(n, "storage") + " or their holders changed while they were read: their lines may be wrong"
}

// WasteLine is memory that could be freed, in words.
type WasteLine struct {
	ledger.Waste
	On   string // the device as PyTorch names it
	Text string // why and how, clean of control characters
}

// Waste returns what could be freed on the chosen devices, the most bytes first.
func (h *Holders) Waste() (list []WasteLine) {
	for i := range h.Result.Waste {
		x := &h.Result.Waste[i]
		if h.Device == "" || x.Device == h.Device {
			list = append(list, wasteLine(&ledger.Waste{Kind: string(x.Kind), Path: x.Holder, Device: int32(x.Index), Bytes: x.Bytes, Storages: x.Storages, Whole: x.Whole}, x.Device))
		}
	}
	return list
}

// DivideWaste returns what could be freed, and what only says that models are there more than once.
func DivideWaste(list []WasteLine) (waste, copies []WasteLine) {
	for i := range list {
		if verdict.IsCopies(&list[i].Waste) {
			copies = append(copies, list[i])
		} else {
			waste = append(waste, list[i])
		}
	}
	return waste, copies
}

// WasteOf returns what the latest walk of a process found that could be freed, the most bytes
// first. Of a process that has ended it is nothing.
func WasteOf(s *ledger.Snapshot, process int) (list []WasteLine) {
	w := s.LatestWalk(process)
	if w == nil || s.Processes[process].End != 0 {
		return nil
	}
	for i := range w.Waste {
		list = append(list, wasteLine(&w.Waste[i], format.Device(w.Waste[i].Device, ledger.Tensor)))
	}
	return list
}

func wasteLine(x *ledger.Waste, on string) WasteLine {
	l := WasteLine{Waste: *x, On: on, Text: verdict.WasteText(x)}
	l.Path = untrusted.Clean(l.Path)
	return l
}

// SumWaste adds up what could be freed.
func SumWaste(list []WasteLine) (bytes uint64) {
	for i := range list {
		bytes += list[i].Bytes
	}
	return bytes
}
