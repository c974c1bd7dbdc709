// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/imported"
	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// books are a Moment, summed up for all views. Only its growth is set later: see series.
type books struct {
	Moment
	gpus      []gpu
	processes []process
	lines     []line
	holdings  []report.Holding
	next      []int32          // of a holding: the next one of its line; -1: none
	paths     []*lines         // of a holding; nil: it has no stack
	judged    []*judged        // of a holding; nil: no verdict
	marks     map[string]int32 // frames that are no code
	frames    []callstack.Frame
	kept      []*report.Kept // by process; nil: see moduleOf
	loss      string         // the worst of what the books lack; "": nothing
	doubts    []string
	half      uint64 // ns: line.growth is of the time since
	alive     bool   // a process has not ended
	imports   []imported.Memory
}

// gpu is one GPU, or what processes call one where NVML is missing.
type gpu struct {
	key         gpuKey
	label       string // "0", "1 MIG", "cuda:0"
	model       string
	used, total uint64 // total 0: unknown
	known       bool   // used is NVML's, corrected by what was booked since
	planes      [planeCount]int64
	untraced    uint64 // used by processes that are not traced
	beyond      uint64 // what the books have more than NVML reports: in no sum
	largest     int    // index into processes; -1: none
	running     int    // traced processes on it
	growth      growth
}

// gpuKey is a UUID, or a CUDA ordinal where that is all that is known.
type gpuKey struct {
	uuid   string
	device int32
}

// growth is a change of memory.
type growth struct {
	perMinute int64
	span      uint64 // ns, over which it was measured; 0: not known yet
}

// process is one traced process on one GPU.
type process struct {
	key        rowKey
	index      int    // into Snapshot.Processes
	gpu        int    // -1: on none
	pid        string // digits
	command    string
	user, job  string
	rank       string // "rank 3"; "" without one
	live, peak int64
	planes     [planeCount]int64
	siteGrowth int64 // in the later half of the session, of what it allocated from CUDA
	growth     growth
	class      verdict.Class
	ended      uint64 // ns since it ended plus 1; 0: it runs
	lost       bool   // its figures can be wrong
	since      uint64 // ns since it was first seen
}

type rowKey struct {
	process ledger.ProcessID
	gpu     gpuKey
}

// compare orders keys, so that what is chosen of equals is always the same.
func (k *rowKey) compare(x *rowKey) int {
	return cmp.Or(cmp.Compare(k.process.PID, x.process.PID), cmp.Compare(k.process.Begin, x.process.Begin), cmp.Compare(k.gpu.uuid, x.gpu.uuid), cmp.Compare(k.gpu.device, x.gpu.device))
}

// line sums the memory of one plane that comes from one line of code, in one process on one GPU.
type line struct {
	process    int // index into Snapshot.Processes
	gpu        int // index into books.gpus; -1: on none
	plane      int
	frame      int32
	own, total int64 // total: of all stacks through the line
	count      uint64
	growth     int64 // in the later half of the session
	oldest     uint64
	judged     *judged
	incomplete bool
	first      int32 // holding; the others follow by books.next
	holdings   int
}

func (l *line) class() verdict.Class {
	if l.judged == nil {
		return 0
	}
	return l.judged.class
}

// reader sums up moments, one at a time.
type reader struct {
	names *names
	users map[uint32]string
	user  func(uint32) string
}

func newReader(o *Options) *reader {
	return &reader{names: newNames(), users: map[uint32]string{}, user: o.User}
}

type lineKey struct {
	process, gpu, plane int32
	frame               int32
}

// reading is one moment in the making.
type reading struct {
	*reader
	*books
	s     *ledger.Snapshot
	gpuAt map[gpuKey]int
	rowAt map[[2]int]int // by process and GPU
	rows  [][]int        // by process
}

// read sums up a moment. It names stacks, which can take long when a library is new.
func (r *reader) read(m Moment) *books {
	r.names.trim()
	s := m.high()
	b := &books{Moment: m, holdings: report.Holdings(s), half: s.SessionGrowthSpan(), imports: imported.Of(m.Snapshot)}
	d := &reading{reader: r, books: b, s: s, gpuAt: map[gpuKey]int{}, rowAt: map[[2]int]int{}, rows: make([][]int, len(s.Processes))}
	for i := range s.Processes {
		b.alive = b.alive || s.Processes[i].End == 0
	}
	d.listGPUs()
	d.sum()
	d.finishProcesses()
	d.finishGPUs()
	b.frames = r.names.frames
	d.readDoubts()
	return b
}

func (d *reading) listGPUs() {
	for i := range d.s.GPUs {
		g := &d.s.GPUs[i]
		label := strconv.Itoa(g.Index)
		if g.Parent != "" {
			label += "/" + cutTo(format.ShortUUID(g.UUID), 4)
		}
		d.gpuAt[gpuKey{uuid: g.UUID}] = len(d.gpus)
		d.gpus = append(d.gpus, gpu{key: gpuKey{uuid: g.UUID}, label: label, model: tidy(g.Name), used: g.Now(), total: g.Total, known: true, largest: -1})
	}
}

func cutTo(s string, n int) string { return s[:min(len(s), n)] }

// gpuOf returns the index of a GPU.
func (d *reading) gpuOf(uuid string, device int32) int {
	key := gpuKey{uuid: uuid}
	if uuid == "" {
		key.device = max(device, -1)
	}
	n, ok := d.gpuAt[key]
	if !ok {
		n = len(d.gpus)
		d.gpuAt[key] = n
		label := "?"
		switch {
		case uuid != "":
			label = tidy(cutTo(format.ShortUUID(uuid), 8))
		case device >= 0:
			label = format.Device(device, ledger.Device)
		}
		d.gpus = append(d.gpus, gpu{key: key, label: label, largest: -1})
	}
	return n
}

// row returns the row of a process on a GPU.
func (d *reading) row(p, g int) *process {
	n, ok := d.rowAt[[2]int{p, g}]
	if !ok {
		n = len(d.processes)
		d.rowAt[[2]int{p, g}] = n
		d.rows[p] = append(d.rows[p], n)
		x := process{index: p, gpu: g, key: rowKey{process: d.s.Processes[p].ID()}}
		if g >= 0 {
			x.key.gpu = d.gpus[g].key
		}
		d.processes = append(d.processes, x)
	}
	return &d.processes[n]
}

// sum adds all holdings to their processes and lines.
func (d *reading) sum() {
	at := make(map[lineKey]int32, len(d.holdings))
	d.next, d.paths, d.marks = make([]int32, len(d.holdings)), make([]*lines, len(d.holdings)), map[string]int32{}
	d.judged = make([]*judged, len(d.holdings))
	planeOf, gpuOf := make([]int8, len(d.holdings)), make([]int32, len(d.holdings))
	for i := range d.holdings {
		h := &d.holdings[i]
		p, g := d.place(h)
		planeOf[i], gpuOf[i] = int8(p), int32(g)
		if !h.Apart() {
			d.addToProcess(h, p, g)
		}
		frame := int32(0)
		if h.Site != nil {
			d.paths[i] = d.names.of(d.Stacks, h.Site.Stack, h.Site.API, d.headOf(h))
			frame = d.paths[i].head
		}
		if h.Mark != "" {
			if _, ok := d.marks[h.Mark]; !ok {
				d.marks[h.Mark] = d.names.mark(h.Mark)
			}
		}
		if h.Site == nil {
			frame = d.marks[h.Mark]
		}
		d.addToLine(at, lineKey{int32(h.Process), int32(g), int32(p), frame}, i)
	}
	for i := range d.holdings { // all rows and lines are known now
		h := &d.holdings[i]
		if h.Apart() {
			d.addToProcess(h, int(planeOf[i]), int(gpuOf[i]))
		}
		if d.paths[i] == nil {
			continue
		}
		for _, frame := range d.paths[i].own {
			if n, ok := at[lineKey{int32(h.Process), gpuOf[i], int32(planeOf[i]), frame}]; ok {
				d.lines[n].total += h.Live
			}
		}
	}
	d.lines = slices.DeleteFunc(d.lines, func(l line) bool { return l.own == 0 && l.total == 0 && l.count == 0 })
}

// headOf returns where the headline of a site was judged to be, 0 if it was not. Memory without a
// verdict of its own, as a cache, has that of frames.Headline.
func (d *reading) headOf(h *report.Holding) int {
	if j := d.Judged.of(d.s, h.Site); j != nil && h.Mark == "" {
		return d.Judged.heads[d.s.IDOf(h.Site)]
	}
	return 0
}

// place returns the plane and the GPU of a holding. Memory that is in no GPU's sum makes none
// known.
func (d *reading) place(h *report.Holding) (plane, gpu int) {
	switch {
	case h.OnHost():
		return hostPlane, -1
	case h.Apart():
		if n, ok := d.gpuAt[gpuKey{uuid: h.UUID}]; ok {
			return planeNumber(h.Plane), n
		}
		return planeNumber(h.Plane), -1
	}
	return planeNumber(h.Plane), d.gpuOf(h.UUID, h.Device)
}

func (d *reading) addToProcess(h *report.Holding, plane, g int) {
	if d.s.Processes[h.Process].End != 0 { // its memory is gone
		return
	}
	if g < 0 { // host memory stands on the process's first row
		if list := d.rows[h.Process]; len(list) > 0 {
			d.processes[list[0]].planes[plane] += h.Live
			return
		}
	}
	x := d.row(h.Process, g)
	x.planes[plane] += h.Live
	if plane < barPlanes {
		x.live += h.Live
	}
	if h.Site != nil && h.Site.Kind.Owned() {
		x.siteGrowth += d.grown(h.Site)
	}
}

// grown returns the growth of a site as of the later half of the session, at the rate of its own
// time.
func (b *books) grown(x *ledger.Site) int64 {
	half := b.Snapshot.GrowthSpan(x.Process)
	if half == b.half || half == 0 {
		return x.Growth
	}
	return int64(float64(x.Growth) * float64(b.half) / float64(half))
}

func (d *reading) addToLine(at map[lineKey]int32, key lineKey, i int) {
	h := &d.holdings[i]
	n, ok := at[key]
	if !ok {
		n = int32(len(d.lines))
		at[key] = n
		d.lines = append(d.lines, line{process: h.Process, gpu: int(key.gpu), plane: int(key.plane), frame: key.frame, first: -1})
	}
	l := &d.lines[n]
	l.own += h.Live
	d.next[i], l.first = l.first, int32(i)
	l.holdings++
	x := h.Site
	if x == nil {
		l.total += h.Live
		return
	}
	if h.Mark != "" { // the cache, or what is asleep: not what the site allocated
		return
	}
	l.count += report.AwakeObjects(x)
	l.growth += d.grown(x)
	if ns, known := report.Age(d.s, x); known {
		l.oldest = max(l.oldest, ns)
	}
	j := d.Judged.of(d.s, x)
	d.judged[i] = j
	if j != nil && (l.judged == nil || j.class > l.judged.class) {
		l.judged = j
	}
	l.incomplete = l.incomplete || x.Evicted > 0 || x.Crowded > 0 || d.s.Processes[x.Process].Lost > 0
}
