// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/timeline"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// gpusPID is the process that shows the sums of all processes. In the kernel it is the idle task,
// so no program on a GPU has it.
const gpusPID = 0

// traceEvent is an event of the trace event format. Times are microseconds since the begin of the
// timeline.
type traceEvent struct {
	Name     string         `json:"name"`
	Category string         `json:"cat,omitempty"`
	Phase    string         `json:"ph"`
	Scope    string         `json:"s,omitempty"`
	Time     json.Number    `json:"ts,omitempty"`
	PID      uint32         `json:"pid"`
	TID      uint32         `json:"tid"`
	Args     map[string]any `json:"args,omitempty"`
}

// chrome writes a timeline as a stream: it keeps no event.
type chrome struct {
	w       *bufio.Writer
	t       *timeline.Timeline
	st      callstack.Stacks
	begin   uint64
	program []int // by process: how many processes had its pid before
	some    bool
	err     error
}

// Chrome writes a timeline as JSON in the trace event format, which Perfetto's UI and
// chrome://tracing show. Each process and GPU has a counter with the bytes of each plane, one with
// the usage that NVML reports, and counters of page-locked memory, managed memory and tensors
// asleep. The process "GPUs" has the same counters for each GPU, with the sums over its processes.
// Each allocation that ran out of memory, and each large one, is an instant with its line of code.
// A counter is written when it changes.
//
// The planes add up to the usage at each time. What is beyond NVML's figure is in none of them, and
// has a counter of its own. JSON can hold these numbers exactly, but viewers read them as 64-bit
// floats, which are exact to 8 PiB.
//
// If the memory of a process of the snapshot was walked, a counter has what its largest holders
// kept at each walk.
func Chrome(w io.Writer, t *timeline.Timeline, s *ledger.Snapshot, st callstack.Stacks) error {
	c := &chrome{w: bufio.NewWriterSize(w, 1<<16), t: t, st: st}
	if len(t.Times) > 0 {
		c.begin = t.Times[0]
	}
	if len(t.Marks) > 0 {
		c.begin = min(c.begin, t.Marks[0].Time)
	}
	seen := make(map[uint32]int)
	for i := range t.Processes {
		pid := t.Processes[i].PID
		c.program = append(c.program, seen[pid])
		seen[pid]++
	}
	c.w.WriteString(`{"displayTimeUnit":"ms","traceEvents":[`)
	c.names()
	marks := t.Marks
	counters := append(c.rowCounters(), c.gpuCounters()...)
	for i, time := range t.Times {
		for len(marks) > 0 && marks[0].Time < time {
			c.mark(&marks[0])
			marks = marks[1:]
		}
		for k := range counters {
			counters[k].step(c, i)
		}
	}
	for k := range marks {
		c.mark(&marks[k])
	}
	c.holders(s)
	c.w.WriteString("\n]}\n")
	if err := cmp.Or(c.err, c.w.Flush()); err != nil {
		return fmt.Errorf("write trace events: %w", err)
	}
	return nil
}

func (c *chrome) event(e *traceEvent) {
	text, err := json.Marshal(e)
	c.err = cmp.Or(c.err, err)
	if c.some {
		c.w.WriteByte(',')
	}
	c.some = true
	c.w.WriteByte('\n')
	c.w.Write(text)
}

// at returns a time in microseconds: "1500.250". Times before the begin are not in a timeline.
func (c *chrome) at(time uint64) json.Number {
	ns := time - min(c.begin, time)
	return json.Number(fmt.Sprintf("%d.%03d", ns/1000, ns%1000))
}

// names writes the names of processes and of the tracks of their instants.
func (c *chrome) names() {
	meta := func(name string, pid uint32, args map[string]any) {
		c.event(&traceEvent{Name: name, Phase: "M", PID: pid, TID: pid, Args: args})
	}
	meta("process_name", gpusPID, map[string]any{"name": "GPUs"})
	meta("process_sort_index", gpusPID, map[string]any{"sort_index": -1})
	for i := range c.t.Processes {
		p := &c.t.Processes[i]
		if c.program[i] > 0 {
			continue // the first process with the pid has named it
		}
		meta("process_name", p.PID, map[string]any{"name": untrusted.Clean(p.Comm)})
		meta("process_sort_index", p.PID, map[string]any{"sort_index": i})
		if p.Rank != "" {
			meta("process_labels", p.PID, map[string]any{"labels": "rank " + untrusted.Clean(p.Rank)})
		}
		meta("thread_name", p.PID, map[string]any{"name": "allocations"})
	}
}

// plane is one argument of a counter: its value at each time.
type plane struct {
	name string
	sums [][]uint64 // the value is their sum
}

func (p *plane) at(i int) int64 {
	var n int64
	for _, list := range p.sums {
		n += int64(list[i])
	}
	return n
}

// counter is one track, or several tracks that are shown stacked.
type counter struct {
	name   string
	pid    uint32
	planes []plane
	last   []int64 // values written last; nil before the first
}

// step writes the counter at a time if it has changed.
func (k *counter) step(c *chrome, i int) {
	now := make([]int64, len(k.planes))
	for j := range k.planes {
		now[j] = k.planes[j].at(i)
	}
	if slices.Equal(now, k.last) {
		return
	}
	k.last = now
	args := make(map[string]any, len(now))
	for j := range now {
		args[k.planes[j].name] = now[j]
	}
	c.event(&traceEvent{Name: k.name, Category: "memory", Phase: "C", Time: c.at(c.t.Times[i]), PID: k.pid, TID: k.pid, Args: args})
}

// planesOf returns the counters of some rows together: "memory of …", "NVML usage of …".
func (c *chrome) planesOf(pid uint32, where string, rows []*timeline.Row) []counter {
	of := func(name string, get func(*timeline.Row) []uint64) plane {
		p := plane{name: name}
		for _, r := range rows {
			if list := get(r); list != nil {
				p.sums = append(p.sums, list)
			}
		}
		return p
	}
	list := []counter{
		{name: "memory of " + where, pid: pid, planes: []plane{
			of(report.PlaneTensor, func(r *timeline.Row) []uint64 { return r.Tensors }),
			of(report.PlaneCache, func(r *timeline.Row) []uint64 { return r.Cached }),
			of(report.PlaneDriver, func(r *timeline.Row) []uint64 { return r.Driver }),
			of(report.PlaneRounding, func(r *timeline.Row) []uint64 { return r.Rounding }),
			of(report.PlaneBefore, func(r *timeline.Row) []uint64 { return r.Before }),
			of(report.PlaneUnexplained, func(r *timeline.Row) []uint64 { return r.Unexplained }),
		}},
		{name: "NVML usage of " + where, pid: pid, planes: []plane{of("bytes", func(r *timeline.Row) []uint64 { return r.Usage })}},
	}
	for _, apart := range []counter{
		{name: report.BeyondNVML + " on " + where, planes: []plane{of("bytes", func(r *timeline.Row) []uint64 { return r.Beyond })}},
		{name: "page-locked host memory, first used on " + where, planes: []plane{of("bytes", func(r *timeline.Row) []uint64 { return r.Host })}},
		{name: "managed memory of " + where, planes: []plane{of("bytes", func(r *timeline.Row) []uint64 { return r.Managed })}},
		{name: "system-allocated memory on the NUMA node of " + where, planes: []plane{of("bytes", func(r *timeline.Row) []uint64 { return r.System })}},
		{name: "tensors asleep on " + where, planes: []plane{of("bytes", func(r *timeline.Row) []uint64 { return r.Asleep })}},
	} {
		for i := range c.t.Times {
			if apart.planes[0].at(i) != 0 {
				apart.pid = pid
				list = append(list, apart)
				break
			}
		}
	}
	return list
}

func (c *chrome) rowCounters() (list []counter) {
	for i := range c.t.Rows {
		r := &c.t.Rows[i]
		where := format.Device(r.Device, ledger.Device)
		if r.Device < 0 && r.UUID != "" {
			where = untrusted.Clean(r.UUID)
		}
		if n := c.program[r.Process]; n > 0 {
			// after an exec, so that no two counters have the same name
			where += fmt.Sprintf(", program %d", n+1)
		}
		list = append(list, c.planesOf(c.t.Processes[r.Process].PID, where, []*timeline.Row{r})...)
	}
	return list
}

// gpuCounters returns the sums of the rows of each GPU.
func (c *chrome) gpuCounters() (list []counter) {
	rows := make(map[string][]*timeline.Row)
	var order []string
	for i := range c.t.GPUs {
		order = append(order, c.t.GPUs[i].UUID)
	}
	for i := range c.t.Rows {
		r := &c.t.Rows[i]
		if r.UUID == "" {
			continue // an ordinal can mean another GPU in each process
		}
		if !slices.Contains(order, r.UUID) {
			order = append(order, r.UUID)
		}
		rows[r.UUID] = append(rows[r.UUID], r)
	}
	for _, uuid := range order {
		if of := rows[uuid]; len(of) > 0 {
			list = append(list, c.planesOf(gpusPID, c.gpuName(uuid), of)...)
		}
	}
	return list
}

// gpuName returns "GPU 0 GPU-1a2b3c4d-…", with the number that nvidia-smi shows.
func (c *chrome) gpuName(uuid string) string {
	for i := range c.t.GPUs {
		if g := &c.t.GPUs[i]; g.UUID == uuid {
			return fmt.Sprintf("GPU %d %s", g.Index, untrusted.Clean(uuid))
		}
	}
	return untrusted.Clean(uuid)
}

// mark writes an instant on the track of its process. Arguments that PyTorch's profiler also writes
// have its names.
func (c *chrome) mark(m *timeline.Mark) {
	pid := c.t.Processes[m.Process].PID
	e := &traceEvent{Category: "memory", Phase: "i", Scope: "p", Time: c.at(m.Time), PID: pid, TID: pid}
	switch m.Kind {
	case timeline.OutOfMemory:
		e.Scope = "g" // a line through all tracks
		e.Name = "out of memory: " + format.Bytes(m.Size)
	case timeline.Large:
		e.Name = "allocation: " + format.Bytes(m.Size)
	case timeline.Began:
		e.Name, e.Category = "first seen", "process"
	case timeline.Ended:
		e.Name, e.Category = "ended", "process"
	default:
		return
	}
	if m.Kind == timeline.OutOfMemory || m.Kind == timeline.Large {
		list := frames.Visible(c.st, m.Stack, m.API)
		headline := frameText(&list[frames.Headline(list)])
		e.Name += " at " + headline
		stack := make([]string, len(list))
		for i := range list {
			stack[i] = frameText(&list[i])
		}
		e.Args = map[string]any{"Bytes": m.Size, "Device Id": m.Device, "api": untrusted.Clean(m.API), "at": headline, "stack": stack}
	}
	c.event(e)
}
