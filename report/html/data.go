// SPDX-License-Identifier: Apache-2.0

package html

import (
	"cmp"
	"fmt"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// payload is the data part of a page. What there is much of stands in columns: the i-th values of
// all of them belong together. Bytes are numbers, which are exact up to 2^53; times are ns since
// the session began. -1 is "none".
type payload struct {
	Version   int           `json:"v"`
	Title     string        `json:"title"`
	Host      string        `json:"host"`
	Until     string        `json:"until"` // wall clock at the end
	Wall      int64         `json:"wall"`  // likewise, ms since 1970
	Traced    string        `json:"traced"`
	End       uint64        `json:"end"`
	Strings   []string      `json:"strings"`
	Planes    []string      `json:"planes"`
	Apart     []string      `json:"apart"` // of Planes: those in the sum of no GPU
	Processes []processData `json:"processes"`
	GPUs      []gpuData     `json:"gpus"`
	Frames    frameColumns  `json:"frames"`
	Before    int           `json:"before"` // the frame above memory from before the attach; 0: none
	Tree      treeColumns   `json:"tree"`
	Entries   entryColumns  `json:"entries"`
	Chart     *chartData    `json:"chart"`   // null without a timeline
	Opening   *openingData  `json:"opening"` // null: at the end
	Verdicts  bool          `json:"verdicts"`
	Kept      *keptData     `json:"kept"` // null without a walk
	Advice    []string      `json:"advice"`
	Parts     partsData     `json:"parts"`
	Remarks   []string      `json:"remarks"`
	Doubts    []string      `json:"doubts"`
	Warnings  []string      `json:"warnings"`
	Live      *liveData     `json:"live,omitempty"`
}

type processData struct {
	Name   string `json:"name"` // "python3 [42]"
	PID    uint32 `json:"pid"`
	Comm   string `json:"comm"`
	About  string `json:"about,omitempty"`
	Ended  bool   `json:"ended,omitempty"`
	Begin  int64  `json:"begin"`
	Traced string `json:"traced,omitempty"`

	Labels map[string]string `json:"labels,omitempty"` // of profiles
	Ranks  map[string]int64  `json:"ranks,omitempty"`  // likewise
}

type gpuData struct {
	Name  string `json:"name"` // "GPU 0", or the CUDA ordinal where that is all that is known
	Model string `json:"model,omitempty"`
	UUID  string `json:"uuid,omitempty"`
	Short string `json:"short,omitempty"` // of the UUID
	Used  uint64 `json:"used,omitempty"`
	Total uint64 `json:"total,omitempty"`
}

// frameColumns are distinct frames; names and files are indices into Strings. Frame 0 is the root
// of all stacks.
type frameColumns struct {
	Name  []int `json:"name"`
	File  []int `json:"file"`
	Line  []int `json:"line"`
	Class []int `json:"class"` // frames.Class

	Dir    []int `json:"dir"`    // what File leaves out at the front of a source file's name
	Object []int `json:"object"` // the file that native code was mapped from
	Simple []int `json:"simple"` // the name in profiles: of native code without parameters
}

// treeColumns is the tree of all stacks from the outermost call inwards, in the order of a walk
// that visits a node before what is below it; node 0 is the root.
type treeColumns struct {
	Depth []int32 `json:"depth"`
	Frame []int32 `json:"frame"`
}

// entryColumns are shares of memory: a site's, or what one process has on one GPU without a site.
type entryColumns struct {
	Node         []int32   `json:"node"`
	Head         []int     `json:"head"` // frame that says best where it comes from
	Plane        []int     `json:"plane"`
	Process      []int     `json:"process"`
	GPU          []int     `json:"gpu"` // -1: host memory
	Kind         []int     `json:"kind"`
	API          []int     `json:"api"`
	Device       []int     `json:"device"` // "cuda:0", "host"
	Live         []int64   `json:"live"`   // at the end
	Objects      []uint64  `json:"objects"`
	Alloc        []uint64  `json:"alloc"`
	AllocObjects []uint64  `json:"allocObjects"`
	Age          []int64   `json:"age"`        // ns, of the oldest live allocation
	Class        []int     `json:"class"`      // what the verdict is: leaking, growing, cache, steady, one-off
	Verdict      []int     `json:"verdict"`    // its evidence
	Incomplete   []int     `json:"incomplete"` // what its figures or its stack lack
	Below        []int     `json:"below"`      // frames at the leaf that profiles leave out
	Callee       []int     `json:"callee"`     // and what the code above them called
	Series       [][]int64 `json:"series"`     // what was live at the moments of Chart.Grid: steps to the next change, change; null: not known
}

// partsData is the reconciliation: the Lines of a row add up to its Usage.
type partsData struct {
	Names []string   `json:"names"`
	Rows  []partData `json:"rows"`
}

type partData struct {
	Process int     `json:"process"`
	GPU     int     `json:"gpu"`
	Lines   []int64 `json:"lines"`
	Usage   uint64  `json:"usage"`
	Idle    uint64  `json:"idle,omitempty"` // at most this much of the rounding lies unused in pools
}

var planes = report.Planes()

// host is the GPU of what is on none.
const host = -1

// builder collects a payload.
type builder struct {
	in      *Input
	s       *ledger.Snapshot
	p       *payload
	strings map[string]int
	gpus    map[string]int
	frames  map[frameKey]int
	known   map[callstack.Frame]int // in frames
	stacks  map[stackKey]stack
	tree    tree
	entries []entry
	over    *overTime // nil without a timeline
	kept    *kept     // nil without a walk
}

func newPayload(in *Input) *payload {
	s := in.Snapshot
	b := &builder{in: in, s: s, strings: map[string]int{}, gpus: map[string]int{}, frames: map[frameKey]int{}, known: map[callstack.Frame]int{}, stacks: map[stackKey]stack{}}
	texts := report.NewTexts(s, in.Stacks)
	b.p = &payload{
		Version: 1, Title: shorten(untrusted.Clean(in.Title)), Host: shorten(untrusted.Clean(s.Host)),
		Until: s.Wall.UTC().Format("2006-01-02 15:04:05 UTC"), Wall: s.Wall.UnixMilli(), Traced: format.Span(since(s.End, s.Begin)), End: since(s.End, s.Begin),
		Strings: []string{}, Planes: planes, Apart: report.PlanesApart, Processes: []processData{}, GPUs: []gpuData{}, Verdicts: in.Verdicts != nil, Advice: []string{},
		Remarks: list(texts.Remarks), Doubts: []string{}, Warnings: list(texts.Warnings),
	}
	for _, text := range in.Advice {
		b.p.Advice = append(b.p.Advice, untrusted.Clean(text))
	}
	if b.p.Title == "" {
		b.p.Title = "vramprof"
		if b.p.Host != "" {
			b.p.Title += ": " + b.p.Host
		}
	}
	b.text("")
	b.frame(frameKey{name: "all", class: rootClass})
	for i := range s.Processes {
		b.addProcess(&s.Processes[i])
	}
	for i := range s.GPUs {
		b.addGPU(&s.GPUs[i])
	}
	if in.Timeline != nil && len(in.Timeline.Times) > 0 {
		b.over = newOverTime(b, in.Timeline)
	}
	b.kept = newKept(b)
	b.addDoubts()
	b.addHoldings()
	if b.over != nil {
		b.over.addRests()
		b.p.Chart = b.over.chart()
		b.p.Opening = b.over.opening()
	}
	b.kept.write()
	b.p.Before = b.frames[frameKey{name: markBefore, class: int(frames.Remark)}]
	b.addParts()
	order := b.tree.columns(b.entries, &b.p.Tree)
	b.columns(order)
	b.p.Live = newLive(in)
	return b.p
}

// addDoubts adds the doubts, but for those that the page shows beside who keeps memory.
func (b *builder) addDoubts() {
	for _, d := range report.Doubts(b.s) {
		if d.At != report.AtTitle && (!d.At.AboutHolders() || b.kept == nil) {
			b.p.Doubts = append(b.p.Doubts, d.Text)
		}
	}
}

// list is never null in JSON.
func list(texts []string) []string { return append([]string{}, texts...) }

// since is 0 where a time lies before the beginning.
func since(time, begin uint64) uint64 {
	if time < begin {
		return 0
	}
	return time - begin
}

// text returns the index of a string, which is clean already.
func (b *builder) text(s string) int {
	i, ok := b.strings[s]
	if !ok {
		i = len(b.p.Strings)
		b.strings[s] = i
		b.p.Strings = append(b.p.Strings, s)
	}
	return i
}

func (b *builder) addProcess(p *ledger.Process) int {
	d := processData{Name: shorten(format.Process(p)), PID: p.PID, Comm: shorten(untrusted.Clean(p.Comm)), Ended: p.End != 0, Begin: int64(since(p.Begin, b.s.Begin))}
	for i, word := range report.WorkloadText(p.Workload) {
		if i > 0 {
			d.About += ", "
		}
		d.About += word
	}
	d.Labels, d.Ranks = report.WorkloadLabels(&p.Workload)
	for key, name := range d.Labels {
		d.Labels[key] = shorten(name)
	}
	b.p.Processes = append(b.p.Processes, d)
	return len(b.p.Processes) - 1
}

func (b *builder) addGPU(g *ledger.GPU) {
	b.gpus[g.UUID] = len(b.p.GPUs)
	name := fmt.Sprintf("GPU %d", g.Index)
	if g.Parent != "" {
		name += " MIG"
	}
	b.p.GPUs = append(b.p.GPUs, gpuData{Name: name, Model: shorten(untrusted.Clean(g.Name)), UUID: shorten(untrusted.Clean(g.UUID)), Short: shorten(format.ShortUUID(g.UUID)), Used: g.Now(), Total: g.Total})
}

// gpu returns the index of a GPU by its UUID, or by its CUDA ordinal where no UUID is known.
func (b *builder) gpu(uuid string, device int32) int {
	key, d := uuid, gpuData{Name: "GPU", UUID: shorten(untrusted.Clean(uuid)), Short: shorten(format.ShortUUID(uuid))}
	if uuid == "" {
		name := format.Device(max(device, ledger.UnknownDevice), ledger.Device)
		key, d = "\x00"+name, gpuData{Name: name}
		if device < 0 {
			d.Name = "unknown GPU"
		}
	}
	i, ok := b.gpus[key]
	if !ok {
		i = len(b.p.GPUs)
		b.gpus[key] = i
		b.p.GPUs = append(b.p.GPUs, d)
	}
	return i
}

// deviceUUID is the UUID of a CUDA ordinal, "" if it is not known.
func deviceUUID(p *ledger.Process, device int32) string {
	if device >= 0 && int(device) < len(p.Devices) {
		return p.Devices[device]
	}
	return ""
}

func (b *builder) addParts() {
	b.p.Parts = partsData{Names: []string{}, Rows: []partData{}}
	parts := b.s.Parts()
	for i := range parts {
		x := &parts[i]
		lines, usage := report.PartLines(x)
		row := partData{Process: x.Process, GPU: b.gpu(x.UUID, x.Device), Usage: usage, Idle: min(b.s.Balances[i].Idle, x.Rounding)}
		for _, l := range lines {
			if len(b.p.Parts.Rows) == 0 {
				b.p.Parts.Names = append(b.p.Parts.Names, l.Name)
			}
			row.Lines = append(row.Lines, l.Bytes)
		}
		b.p.Parts.Rows = append(b.p.Parts.Rows, row)
	}
}

// age returns the age of the oldest live allocation at the end of its process or of the session; -1
// without one.
func (b *builder) age(x *ledger.Site) int64 {
	if x.Oldest == 0 || x.LiveObjects == 0 {
		return -1
	}
	return int64(min(since(cmp.Or(b.s.Processes[x.Process].End, b.s.End), x.Oldest), uint64(1<<62*time.Nanosecond)))
}
