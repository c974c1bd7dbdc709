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
	"github.com/vramprof/vramprof/tracer/ledger/modelpart"
	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

// Holders is what walks of a process found: who keeps its tensors.
type Holders struct {
	PID    uint32
	Comm   string            // name of the process
	Before *holders.Result   // the first walk; nil: only one was made
	During []*holders.Result // walks between Before and Result, in order
	Result *holders.Result   // the latest
	Device string            // "cuda:0": only this device; "": all
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

// Remedy returns what to do about a container that grows, "" if it is none. What to do about
// gradients depends on how long they live, which verdict.Advise knows where it can be known.
func (g *GrownLine) Remedy() string {
	if !g.Found || g.By.Entries <= 0 || g.Retention.Has(retention.Gradient) {
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
	if n == 1 {
		return "1 storage or its holder changed while it was read: its line may be wrong"
	}
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

// leastNamed is the share of the modules' bytes that ModuleOf's name covers: a small layer
// elsewhere does not widen it.
const leastNamed = 0.95

// ModuleOf returns the innermost object around the modules that have most of what lives of some
// sites of the process, as parameters, buffers or gradients: "model.blocks.*.mlp.0", or
// "model.blocks.*" for several in it, with a star for each number. Modules with nothing around them
// are "encoder and decoder", or "encoder and 3 more". It returns "" for bytes that are mostly no
// module's. The name is clean of control characters.
func (k *Kept) ModuleOf(sites []*ledger.Site) string {
	var live uint64
	for _, x := range sites {
		live += x.LiveBytes
	}
	return moduleOfAll(k.OfSites(sites), live)
}

// moduleOfAll is ModuleOf of bytes that shares divide by holder.
func moduleOfAll(shares []HeldShare, live uint64) string {
	bytes := map[string]uint64{}
	var names []string
	var sum uint64
	for i := range shares {
		name := moduleOf(shares[i].Line)
		if name == "" {
			continue
		}
		if _, known := bytes[name]; !known {
			names = append(names, name)
		}
		bytes[name] += shares[i].Bytes
		sum += shares[i].Bytes
	}
	if sum <= live/2 {
		return ""
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(bytes[b], bytes[a]), cmp.Compare(a, b)) })
	var named uint64
	for i, name := range names {
		if named += bytes[name]; float64(named) >= leastNamed*float64(sum) {
			names = names[:i+1]
			break
		}
	}
	switch name := around(names); {
	case name != "":
		return name
	case len(names) == 2:
		return names[0] + " and " + names[1]
	}
	return fmt.Sprintf("%s and %d more", names[0], len(names)-1)
}

// moduleOf returns the module that a holder is mostly the parameters, buffers or gradients of: of a
// path "model.blocks.*.mlp.weight" the part before the last point.
func moduleOf(h *HolderLine) string {
	if h == nil {
		return ""
	}
	if own := h.Parts[modelpart.Weight] + h.Parts[modelpart.Buffer] + h.Parts[modelpart.Gradient]; own <= h.Parts.Sum()/2 {
		return ""
	}
	path := h.Path // local "model".blocks.*.weight of main() (train.py:7)
	if strings.HasPrefix(path, `local "`) {
		path = strings.TrimPrefix(path, "local ")
	}
	path, _, _ = strings.Cut(path, " ")
	path = strings.TrimSuffix(path, ".grad")
	n := strings.LastIndexByte(path, '.')
	if n <= 0 || strings.ContainsAny(path, "[(") {
		return ""
	}
	return strings.ReplaceAll(path[:n], `"`, "")
}

// around returns the innermost object that all names lie in, "" if there is none but self.
func around(names []string) string {
	path := strings.Split(names[0], ".")
	for _, name := range names[1:] {
		other, n := strings.Split(name, "."), 0
		for n < min(len(path), len(other)) && path[n] == other[n] {
			n++
		}
		path = path[:n]
	}
	if len(names) > 1 && len(path) == 1 && path[0] == "self" {
		return ""
	}
	return strings.Join(path, ".")
}
