// SPDX-License-Identifier: Apache-2.0

package html

import (
	"cmp"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Limits of holders in a page. Smaller ones are summed by process and GPU; links of
// smaller shares are dropped.
const (
	maxKeepers = 5000
	maxPath    = 64 // frames of a path; of a longer one the middle is left out
	maxLinks   = 16 // of one entry that is a site
)

// keeper is a row of keeperColumns.
type keeper struct {
	report.HolderLine
	process, gpu   int
	node           int32 // of kept.tree
	grown, entries int64
}

// kept collects keptData. A nil kept has nothing.
type kept struct {
	b       *builder
	by      []*report.Kept // by process
	tree    tree
	keepers []keeper
	rows    map[keeperKey]int
	data    keptData
}

type keeperKey struct {
	process int
	device  int32
	path    string
}

// newKept returns nil without a walk that found holders or was of a process with tensors: nobody
// expects holders of others.
func newKept(b *builder) *kept {
	k := &kept{b: b, by: report.KeptBy(b.s), rows: map[keeperKey]int{}}
	k.data.Links = linkColumns{Entry: []int{}, Keeper: []int{}, Bytes: []uint64{}}
	found := slices.ContainsFunc(k.by, func(x *report.Kept) bool { return x != nil && x.Failure == "" })
	tensors := report.ReportTensors(b.s)
	for i, x := range k.by {
		if x != nil && (found || tensors[i]) {
			k.addWalk(x)
		}
	}
	if len(k.data.Walks) == 0 {
		return nil
	}
	k.sum()
	for i := range k.keepers {
		x := &k.keepers[i]
		k.rows[keeperKey{x.process, x.Device, x.Path}] = i
	}
	return k
}

func (k *kept) addWalk(x *report.Kept) {
	w := walkData{Process: x.Process, Time: int64(x.At), First: -1, Failure: shorten(x.Failure)}
	if x.Between > 0 {
		w.First = int64(since(x.At, uint64(x.Between)))
	}
	for _, text := range x.Problems {
		w.Notes = append(w.Notes, shorten(text))
	}
	k.data.Walks = append(k.data.Walks, w)
	first := len(k.keepers)
	for i := range x.Lines {
		l := &x.Lines[i]
		k.keepers = append(k.keepers, keeper{HolderLine: *l, process: x.Process, gpu: k.gpu(x.Process, l.Device)})
	}
	for i := range x.Grown {
		g := &x.Grown[i].By
		k.keepers[first+g.Index].grown, k.keepers[first+g.Index].entries = g.Bytes, g.Entries
	}
}

func (k *kept) gpu(process int, device int32) int {
	s := k.b.s
	uuid := report.GPUUUID(s, process, device, ledger.Tensor)
	if b := s.BalanceOf(process, device); uuid == "" && b >= 0 {
		uuid = s.Balances[b].UUID // as report.Holdings
	}
	return k.b.gpu(uuid, device)
}

// sum replaces the smallest keepers by their sum in each process and GPU.
func (k *kept) sum() {
	if len(k.keepers) <= maxKeepers {
		return
	}
	slices.SortStableFunc(k.keepers, func(x, y keeper) int { return cmp.Compare(y.Bytes, x.Bytes) })
	sums := map[[2]int]*keeper{}
	counts := map[[2]int]uint64{}
	var keys [][2]int
	for i := range k.keepers[maxKeepers:] {
		x := &k.keepers[maxKeepers+i]
		key := [2]int{x.process, x.gpu}
		if sums[key] == nil {
			sums[key] = &keeper{process: x.process, gpu: x.gpu}
			sums[key].Device = x.Device
			keys = append(keys, key)
		}
		sums[key].add(x)
		counts[key]++
	}
	k.keepers = k.keepers[:maxKeepers]
	for _, key := range keys {
		x := *sums[key]
		x.Path = "[" + format.Count(counts[key], "smaller holder") + "]"
		k.keepers = append(k.keepers, x)
	}
}

func (x *keeper) add(y *keeper) {
	x.Bytes += y.Bytes
	x.Storages += y.Storages
	x.Older += y.Older
	x.InMotion += y.InMotion
	x.Driver += y.Driver
	x.grown += y.grown
}

// leaf returns the end of a keeper's path in the tree.
func (k *kept) leaf(x *keeper) int32 {
	if len(x.Frames) == 0 {
		return k.tree.leaf([]int{k.b.mark(shorten(x.Path))})
	}
	class := frames.UserPython
	if !x.Found {
		class = frames.UserNative
	}
	var list []int
	for i, name := range x.Frames {
		n := len(x.Frames) - maxPath
		if n > 0 && i == maxPath/2 {
			list = append(list, k.b.mark("[steps left out]"))
		}
		if n <= 0 || i < maxPath/2 || i >= maxPath/2+n {
			list = append(list, k.b.frame(frameKey{name: shorten(name), class: int(class)}))
		}
	}
	return k.tree.leaf(list)
}

// moduleOf returns the module of a process that most memory of its sites belongs to, or "".
func (k *kept) moduleOf(process int, sites []*ledger.Site) string {
	if k == nil {
		return ""
	}
	return k.by[process].ModuleOf(sites)
}

// link notes who keeps a holding, whose entry has this index.
func (k *kept) link(entry int, h *report.Holding) {
	if k == nil {
		return
	}
	shares := k.by[h.Process].Divide(k.b.s, h)
	if len(shares) == 1 && shares[0].Line == nil {
		return
	}
	if h.Site != nil && len(shares) > maxLinks {
		shares = shares[:maxLinks]
	}
	c := &k.data.Links
	for i := range shares {
		x := &shares[i]
		key := keeperKey{h.Process, h.Device, x.Name()}
		if x.Line != nil {
			key.device = x.Line.Device
		}
		if row, ok := k.rows[key]; ok {
			c.Entry, c.Keeper, c.Bytes = append(c.Entry, entry), append(c.Keeper, row), append(c.Bytes, x.Bytes)
		}
	}
}

// write completes the page's data.
func (k *kept) write() {
	if k == nil {
		return
	}
	weights := make([]entry, len(k.keepers))
	for i := range k.keepers {
		k.keepers[i].node = k.leaf(&k.keepers[i])
		weights[i] = entry{node: k.keepers[i].node, live: int64(k.keepers[i].Bytes)}
	}
	place := k.tree.columns(weights, &k.data.Tree)
	k.columns(place)
	k.b.p.Kept = &k.data
}

func (k *kept) columns(place []int32) {
	n := len(k.keepers)
	ints := func() []int { return make([]int, 0, n) }
	counts := func() []uint64 { return make([]uint64, 0, n) }
	c := &k.data.Keepers
	*c = keeperColumns{
		Node: make([]int32, 0, n), Process: ints(), GPU: ints(), Path: ints(), Container: ints(), Also: ints(),
		Bytes: counts(), Older: counts(), Driver: counts(), Storages: counts(), InMotion: counts(), Grown: make([]int64, 0, n), Entries: make([]int64, 0, n),
	}
	for i := range k.keepers {
		x := &k.keepers[i]
		also := make([]string, len(x.Also))
		for j, path := range x.Also {
			also[j] = shorten(path)
		}
		c.Node = append(c.Node, place[x.node])
		c.Process = append(c.Process, x.process)
		c.GPU = append(c.GPU, x.gpu)
		c.Path = append(c.Path, k.b.text(shorten(x.Path)))
		c.Container = append(c.Container, k.b.text(shorten(report.ContainerText(&x.HolderLine))))
		c.Also = append(c.Also, k.b.text(strings.Join(also, ", ")))
		c.Bytes = append(c.Bytes, x.Bytes)
		c.Older = append(c.Older, x.Older)
		c.Driver = append(c.Driver, x.Driver)
		c.Storages = append(c.Storages, x.Storages)
		c.InMotion = append(c.InMotion, x.InMotion)
		c.Grown = append(c.Grown, x.grown)
		c.Entries = append(c.Entries, x.entries)
	}
}
