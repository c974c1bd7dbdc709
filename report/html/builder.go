// SPDX-License-Identifier: Apache-2.0

package html

import (
	"cmp"
	"fmt"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

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

// age returns the age of the oldest live allocation at the end of its process or of the session; -1
// without one.
func (b *builder) age(x *ledger.Site) int64 {
	if x.Oldest == 0 || x.LiveObjects == 0 {
		return -1
	}
	return int64(min(since(cmp.Or(b.s.Processes[x.Process].End, b.s.End), x.Oldest), uint64(1<<62*time.Nanosecond)))
}

// entry is a share of memory in the page.
type entry struct {
	node                int32
	head                int
	plane, process, gpu int
	kind, api, device   int // strings
	class, verdict      int // likewise
	incomplete, callee  int // likewise
	below               int
	live                int64
	objects             uint64
	alloc, allocObjects uint64
	age                 int64
	series              []int64
	calls               []string     // of the stack
	site                *ledger.Site // whose own memory it is, or nil
}
