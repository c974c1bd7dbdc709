// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/google/pprof/profile"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

const docURL = "https://github.com/vramprof/vramprof"

// Write writes a gzip-compressed pprof profile, with one sample for each site and one for each
// share of NVML's figures without a site. The first sample types are those of Go's heap profile.
//
// inuse_space is GPU memory alone, each byte in one sample: the total that pprof prints by default
// is what nvidia-smi prints for the same processes. No sample is below 0: what is beyond NVML's
// figure is taken off the samples, and a comment has it. Pinned memory and tensors in shared
// memory, which can be many times a GPU's size, have sample types of their own, host_objects and
// host_space. So does managed memory, which NVML counts for no process; its plane is "managed".
// alloc_objects and alloc_space include all of them.
//
// If the memory of a process was walked, samples of its tensors are divided by the label "holder".
//
// Memory of ended processes is in use as it was at their end. peak_objects and peak_space have it
// as it was at their peak, in samples of their own, and what runs as of now. Samples of imported
// memory have objects but no bytes, because the samples of their owner have the bytes; the label
// "bytes" and a comment have the sizes. Samples of PyTorch's segments have the bytes of the cache
// only, because their blocks have the rest. Tensors asleep have no bytes in use.
//
// Functions have simple names, and their mangled names as system names. The leaf of a stack is the
// code that people can change, as frames.Leaf finds it; what it called is in the labels "callee"
// and "api". drop_frames is empty: it drops all callees of a frame too, and none of another caller.
func Write(w io.Writer, s *ledger.Snapshot, st callstack.Stacks) error {
	return New(s, st).Write(w)
}

// defaultType returns the sample type that pprof shows by default: of a session whose only process
// has ended, the peak. The peaks of several are of several moments, and have no sum.
func defaultType(s *ledger.Snapshot) string {
	if len(s.Peaks) == 1 && report.AllEnded(s) {
		return "peak_space"
	}
	return "inuse_space"
}

func newProfile(s *ledger.Snapshot, st callstack.Stacks) *profile.Profile {
	b := &builder{
		p: &profile.Profile{
			SampleType: []*profile.ValueType{
				{Type: "alloc_objects", Unit: "count"},
				{Type: "alloc_space", Unit: "bytes"},
				{Type: "inuse_objects", Unit: "count"},
				{Type: "inuse_space", Unit: "bytes"},
				{Type: "host_objects", Unit: "count"},
				{Type: "host_space", Unit: "bytes"},
				{Type: "peak_objects", Unit: "count"},
				{Type: "peak_space", Unit: "bytes"},
			},
			DefaultSampleType: defaultType(s),
			PeriodType:        &profile.ValueType{Type: "space", Unit: "bytes"},
			Period:            1,
			TimeNanos:         s.Wall.UnixNano(),
			DurationNanos:     int64(s.End - s.Begin),
			DocURL:            docURL,
		},
		mappings:  make(map[mappingKey]*profile.Mapping),
		functions: make(map[functionKey]*profile.Function),
		locations: make(map[string]*profile.Location),
	}
	b.addMain(mainProcess(s))
	type stackKey struct {
		id  uint64
		api string // of a site without stack
	}
	type stack struct {
		locations []*profile.Location
		callee    string
	}
	stacks, kept := make(map[stackKey]stack), report.KeptBy(s)
	sample := func(s *ledger.Snapshot, h *report.Holding) *profile.Sample {
		if h.Plane == report.PlaneAsleep { // there is no memory to show
			return nil
		}
		var locations []*profile.Location
		callee := ""
		if h.Mark != "" {
			locations = b.stack([]callstack.Frame{{Function: h.Mark, Mark: true}})
		}
		if x := h.Site; x != nil {
			key := stackKey{id: x.Stack}
			if x.Stack == 0 {
				key.api = x.API
			}
			below, ok := stacks[key]
			if !ok {
				list := frames.Visible(st, x.Stack, x.API)
				var n int
				n, below.callee = frames.Leaf(list)
				below.locations = b.stack(list[n:])
				stacks[key] = below
			}
			locations, callee = append(locations, below.locations...), below.callee
		}
		x := newSample(s, st, h, locations)
		if callee != "" {
			x.Label["callee"] = []string{callee}
			b.cut = true
		}
		return x
	}
	for _, h := range report.Holdings(s) {
		x := sample(s, &h)
		if x == nil {
			continue
		}
		for _, part := range b.held(s, kept[h.Process], &h, x) {
			objects, bytes := part.Value[2], part.Value[3]
			if s.PeakOf(h.Process) != nil {
				objects, bytes = 0, 0 // see below
			}
			part.Value = append(part.Value, objects, bytes)
			b.p.Sample = append(b.p.Sample, part)
		}
	}
	for i := range s.Peaks {
		for _, h := range report.Holdings(s.Peaks[i].Books) {
			if x := sample(s.Peaks[i].Books, &h); x != nil && x.Value[3] != 0 {
				x.Value = []int64{0, 0, 0, 0, 0, 0, x.Value[2], x.Value[3]}
				b.p.Sample = append(b.p.Sample, x)
			}
		}
	}
	b.p.Comments = comments(s, st, sourceText(s, b.p), b.cut)
	quote(b.p)
	return b.p
}

func newSample(s *ledger.Snapshot, st callstack.Stacks, h *report.Holding, locations []*profile.Location) *profile.Sample {
	process := &s.Processes[h.Process]
	kind, api := ledger.Device, ""
	value := []int64{0, 0, 0, h.Live, 0, 0}
	number := map[string][]int64{"pid": {int64(process.PID)}}
	unit := map[string][]string{}
	if h.Plane == report.PlaneTensor {
		kind = ledger.Tensor
	}
	if x := h.Site; x != nil {
		kind, api = x.Kind, x.API
		value[0], value[1], value[2] = int64(x.AllocObjects), int64(x.AllocBytes), int64(report.AwakeObjects(x))
		if h.Plane == report.PlaneCache || !report.InSums(kind) {
			value[1] = 0
		}
		number["bytes"], unit["bytes"] = []int64{int64(x.AllocBytes / max(x.AllocObjects, 1))}, []string{"bytes"}
	}
	if h.Apart() {
		value[2], value[3], value[4], value[5] = 0, 0, value[2], value[3]
	}
	label := map[string][]string{"device": {format.Device(h.Device, kind)}, "plane": {h.Plane}}
	if h.Site != nil || kind == ledger.Tensor {
		label["kind"] = []string{format.Kind(kind)}
	}
	for key, text := range map[string]string{
		"api":      untrusted.Clean(api),
		"comm":     untrusted.Clean(process.Comm),
		"gpu_uuid": untrusted.Clean(h.UUID),
	} {
		if text != "" {
			label[key] = []string{text}
		}
	}
	if h.Mark == report.MarkUntraced {
		label["incomplete"] = []string{"not traced"}
	}
	if h.Site != nil {
		if words := report.MarkWords(s, st, h.Site); len(words) > 0 {
			label["incomplete"] = words
		}
	}
	ownerLabels(s, st, h.Site, label, number)
	workloadLabels(&process.Workload, label, number, unit)
	return &profile.Sample{
		Location: locations,
		Value:    value,
		Label:    label,
		NumLabel: number,
		NumUnit:  unit,
	}
}

// mainProcess returns the process with the most live bytes, then the most allocated bytes; nil
// without processes.
func mainProcess(s *ledger.Snapshot) *ledger.Process {
	var best *ledger.Process
	var bestLive, bestAlloc uint64
	for i := range s.Processes {
		var live, alloc uint64
		for _, t := range s.Processes[i].Totals {
			if report.InSums(t.Kind) && t.Kind != ledger.Tensor {
				live += t.LiveBytes
				alloc += t.AllocBytes
			}
		}
		if best == nil || live > bestLive || live == bestLive && alloc > bestAlloc {
			best, bestLive, bestAlloc = &s.Processes[i], live, alloc
		}
	}
	return best
}

type mappingKey struct {
	path, buildID        string
	start, limit, offset uint64
}

type functionKey struct {
	name, systemName, file string
	startLine              int
}

type builder struct {
	p         *profile.Profile
	mappings  map[mappingKey]*profile.Mapping
	functions map[functionKey]*profile.Function
	locations map[string]*profile.Location // by mapping, address and lines
	mainPath  string                       // of Mapping[0], "" once a frame gave its range
	cut       bool                         // some stack is without frames at the leaf
	key       []byte
}

// addMain makes a process's program the first mapping, which pprof shows as the file of the
// profile.
func (b *builder) addMain(p *ledger.Process) {
	if p == nil {
		return
	}
	b.mainPath = p.Exe
	name := untrusted.Clean(p.Exe)
	if name == "" {
		name = untrusted.Clean(p.Comm)
	}
	if name == "" {
		name = fmt.Sprintf("pid %d", p.PID)
	}
	b.p.Mapping = append(b.p.Mapping, &profile.Mapping{ID: 1, File: name, HasFunctions: true})
}

func (b *builder) mapping(f *callstack.Frame) *profile.Mapping {
	key := mappingKey{path: "[python]"}
	if !f.Python {
		if f.Mapping == nil {
			return nil
		}
		m := f.Mapping
		key = mappingKey{m.Path, m.BuildID, m.Start, m.Limit, m.Offset}
	}
	if m := b.mappings[key]; m != nil {
		return m
	}
	var m *profile.Mapping
	if key.path == b.mainPath && !f.Python && b.mainPath != "" {
		m, b.mainPath = b.p.Mapping[0], ""
	} else {
		m = &profile.Mapping{ID: uint64(len(b.p.Mapping)) + 1}
		b.p.Mapping = append(b.p.Mapping, m)
	}
	m.Start, m.Limit, m.Offset = key.start, key.limit, key.offset
	m.File, m.BuildID = untrusted.Clean(key.path), untrusted.Clean(key.buildID)
	// Every frame has a name, so pprof need not search for the file.
	m.HasFunctions = true
	b.mappings[key] = m
	return m
}

// stack turns frames into locations. Frames inlined into the next one share its location.
func (b *builder) stack(list []callstack.Frame) []*profile.Location {
	var locations []*profile.Location
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n-1].Inlined && list[n].Mapping == list[n-1].Mapping && list[n].Address == list[n-1].Address {
			n++
		}
		locations = append(locations, b.location(list[:n]))
		list = list[n:]
	}
	return locations
}

func (b *builder) location(lines []callstack.Frame) *profile.Location {
	outer := &lines[len(lines)-1]
	m := b.mapping(outer)
	b.key = b.key[:0]
	if m != nil {
		b.key = binary.AppendUvarint(b.key, m.ID)
	} else {
		b.key = append(b.key, 0)
	}
	b.key = binary.AppendUvarint(b.key, outer.Address)
	for i := range lines {
		b.key = binary.AppendUvarint(b.key, b.function(&lines[i]).ID)
		b.key = binary.AppendVarint(b.key, int64(lines[i].Line))
	}
	if l := b.locations[string(b.key)]; l != nil {
		return l
	}
	l := &profile.Location{ID: uint64(len(b.p.Location)) + 1, Mapping: m, Address: outer.Address}
	for i := range lines {
		f := &lines[i]
		l.Line = append(l.Line, profile.Line{Function: b.function(f), Line: int64(f.Line)})
		if m != nil {
			m.HasFilenames = m.HasFilenames || f.File != ""
			m.HasLineNumbers = m.HasLineNumbers || f.Line != 0
			m.HasInlineFrames = m.HasInlineFrames || f.Inlined
		}
	}
	b.locations[string(b.key)] = l
	b.p.Location = append(b.p.Location, l)
	return l
}

func (b *builder) function(f *callstack.Frame) *profile.Function {
	key := functionKey{f.Function, f.SystemName, f.File, f.StartLine}
	if key.name == "" {
		key.name = frames.Name(f)
	}
	if f.Python {
		key.systemName = "" // else pprof makes [[python]] of <module>
	}
	if fn := b.functions[key]; fn != nil {
		return fn
	}
	fn := &profile.Function{
		ID: uint64(len(b.p.Function)) + 1, Name: frames.Name(f), SystemName: untrusted.Clean(key.systemName),
		Filename: untrusted.Clean(key.file), StartLine: int64(key.startLine),
	}
	if simple := frames.ShortName(f); simple != fn.Name {
		if fn.SystemName == "" || fn.SystemName == simple { // no mangled name, which is the full one for pprof
			fn.SystemName = fn.Name
		}
		fn.Name = simple
	}
	b.functions[key] = fn
	b.p.Function = append(b.p.Function, fn)
	return fn
}
