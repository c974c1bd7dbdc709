// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/internal/realtorch"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// torchMachine is a simulated machine on which a real PyTorch runs.
type torchMachine struct {
	*machine
	root realtorch.Root
	late bool // its tracer came in the middle: memory that it does not know is freed
}

func newTorchMachine(t *testing.T, gpus int, more ...string) *torchMachine {
	t.Helper()
	fakecuda.OnlyFake(t, "it compares with the fake's account of calls")
	root := realtorch.Prepare(t)
	return &torchMachine{newMachine(t, gpus, more...), root, false}
}

// job starts a job of testdata/realtorch under a name by which it is traced.
func (m *torchMachine) job(more []string, script string, args ...string) *realtorch.Job {
	m.t.Helper()
	env := m.root.Env(m.t, 1, 1<<30) // of another machine, which nobody uses
	for _, v := range m.env {
		if strings.HasPrefix(v, "FAKECUDA_") {
			env = append(env, v)
		}
	}
	return m.root.Start(m.t, append(append(env, "PYTHON_COMM="+m.name), more...), script, args...)
}

// begun waits until the tracer knows all that a job has mapped: its stacks are whole from then on.
func (m *torchMachine) begun(j *realtorch.Job) {
	m.t.Helper()
	j.Next("begin")
	m.eventsRead() // and then those of mappings
	m.workDone()   // a load may be under way
	m.loaded(uint32(j.Process.Pid))
	m.workDone()
	m.loaded(uint32(j.Process.Pid))
	m.snapshot()
}

// attach begins another tracer, of these processes only.
func (m *torchMachine) attach(sample uint64, pids ...int) *torchMachine {
	m.t.Helper()
	single := *m.machine
	single.trace(func(c *Config) {
		c.Name, c.Sample = nil, sample
		for _, pid := range pids {
			c.PIDs = append(c.PIDs, uint32(pid))
		}
	})
	return &torchMachine{&single, m.root, true}
}

// torchCheck compares a snapshot with what a job reports about itself at a point, and with the
// machine's own account.
type torchCheck struct {
	t       *testing.T
	m       *torchMachine
	s       *ledger.Snapshot
	p       realtorch.Point
	process int
	usage   fakecuda.Process
	what    string
}

func (m *torchMachine) check(t *testing.T, p realtorch.Point) *torchCheck {
	t.Helper()
	if m.Tracer.snapshots.scanner != nil {
		m.Tracer.snapshots.scanner.Last(t.Context()) // as at the end of a session
	}
	s := m.snapshot()
	_, process := processOf(t, s, uint32(p.PID))
	// So it was, before it made its contexts: until then its libraries were not probed.
	// Other processes of a busy machine may not answer in time.
	s.Warnings = slices.DeleteFunc(s.Warnings, func(w string) bool {
		return strings.Contains(w, " before being probed") || strings.Contains(w, " stalls reads of its arguments") && !strings.Contains(w, fmt.Sprintf("process %d ", p.PID))
	})
	if m.late {
		s.Stats.UnmatchedFrees = 0
	}
	checkLosses(t, s)
	return &torchCheck{t, m, s, p, process, m.usage(uint32(p.PID)), fmt.Sprintf("%s %d", p.Point, p.Step)}
}

// gpu is the machine's own account of what the process holds on a device of it.
func (c *torchCheck) gpu(device int) (gpu fakecuda.GPU, uuid string) {
	c.t.Helper()
	uuid = c.s.Processes[c.process].Devices[device]
	at := slices.Index(devicesOf(c.s), uuid)
	if at < 0 {
		c.t.Fatalf("%s: cuda:%d is %q, none of the machine's", c.what, device, uuid)
	}
	return c.usage.GPUs[at], uuid
}

func (c *torchCheck) tensors(device int) *ledger.Tensors {
	c.t.Helper()
	for i := range c.s.Tensors {
		if x := &c.s.Tensors[i]; x.Process == c.process && int(x.Device) == device {
			return x
		}
	}
	c.t.Fatalf("%s: nothing is known of tensors on cuda:%d", c.what, device)
	return nil
}

// totals wants the allocator's figures to be the job's, and the sites to add up to them.
func (c *torchCheck) totals() {
	c.t.Helper()
	for _, d := range c.p.Devices {
		x := c.tensors(d.Device)
		var blocks, segments, inside fakecuda.Count
		for _, site := range c.s.Sites {
			switch {
			case site.Process != c.process || int(site.Device) != d.Device:
			case site.Kind == ledger.Tensor:
				blocks.Objects += site.LiveObjects
				blocks.Bytes += site.LiveBytes
			case site.Segment:
				segments.Bytes += site.LiveBytes
				inside.Bytes += site.Tensors
			}
		}
		if x.Allocated != d.Allocated || x.Reserved != d.Reserved {
			c.t.Errorf("%s: cuda:%d: %d bytes are allocated and %d reserved, the job says %d and %d", c.what, d.Device, x.Allocated, x.Reserved, d.Allocated, d.Reserved)
		}
		if x.LiveBytes+x.Older != d.Allocated || x.LiveBytes != blocks.Bytes || x.LiveObjects != blocks.Objects {
			c.t.Errorf("%s: cuda:%d: live %d/%d and older %d of %d bytes, sites have %d/%d", c.what, d.Device, x.LiveObjects, x.LiveBytes, x.Older, d.Allocated, blocks.Objects, blocks.Bytes)
		}
		if x.Segments != segments.Bytes || x.Segments > d.Reserved || x.Cached != segments.Bytes-inside.Bytes || x.LargestFree > x.Cached+x.OlderCached {
			c.t.Errorf("%s: cuda:%d: segments of %d bytes, %d cached, %d in a run; sites have %d and %d of tensors", c.what, d.Device, x.Segments, x.Cached, x.LargestFree, segments.Bytes, inside.Bytes)
		}
		c.stuck(d, x)
	}
}

// stuck wants the segments with tensors and free memory to be those that the job itself finds, if
// it marked the attach.
func (c *torchCheck) stuck(d realtorch.Device, of *ledger.Tensors) {
	c.t.Helper()
	if of.Segments != d.Reserved-d.OlderReserved {
		return
	}
	var x ledger.Stuck
	for i := range c.s.Stuck {
		if at := &c.s.Stuck[i]; at.Process == c.process && int(at.Device) == d.Device {
			x = *at
		}
	}
	cached := of.Cached
	if x.Read != 0 {
		d.Held, d.Stuck, d.Idle = d.AllHeld, d.AllStuck, d.AllIdle
		cached = of.Cached + of.OlderCached
	}
	if x.Segments != d.Held || x.Free != d.Stuck || x.Idle != d.Idle || x.Free+x.Idle != cached {
		c.t.Errorf("%s: cuda:%d: %d segments have %d bytes free, %d idle, of %d cached; the job says %d, %d and %d", c.what, d.Device, x.Segments, x.Free, x.Idle, cached, d.Held, d.Stuck, d.Idle)
	}
}

// whole wants all of the allocator's to be known, as it is if the job was traced from its start.
func (c *torchCheck) whole() {
	c.t.Helper()
	for _, d := range c.p.Devices {
		if x := c.tensors(d.Device); x.Older != 0 || x.OlderCached != 0 || x.Segments != d.Reserved || x.Cached != d.Reserved-d.Allocated {
			c.t.Errorf("%s: cuda:%d: %d of %d bytes reserved, %d cached, and older %d and %d", c.what, d.Device, x.Segments, d.Reserved, x.Cached, x.Older, x.OlderCached)
		}
	}
}

// parts wants NVML's figure of each GPU to be explained to the byte, but for what the driver rounds
// single allocations up by: PyTorch's four parts are what it reserved, foreign is what was there
// besides at the attach, and the rest other allocations.
func (c *torchCheck) parts(foreign, rounded uint64) {
	c.t.Helper()
	parts := c.s.Parts()
	for _, d := range c.p.Devices {
		gpu, uuid := c.gpu(d.Device)
		at := slices.IndexFunc(parts, func(x ledger.Part) bool { return x.Process == c.process && x.UUID == uuid })
		if at < 0 {
			c.t.Errorf("%s: cuda:%d has no parts", c.what, d.Device)
			continue
		}
		x := &parts[at]
		torch := x.Tensors + x.Cached + x.OlderAllocated + x.OlderCached
		sum := torch + x.Driver + x.Rounding + x.Foreign + uint64(x.Unexplained)
		if sum != gpu.Usage || x.Unexplained != 0 || x.Rounding != rounded || torch != d.Reserved || x.Foreign != gpu.Context+foreign ||
			x.Tensors+x.OlderAllocated != d.Allocated || x.Tensors != c.tensors(d.Device).LiveBytes {
			c.t.Errorf("%s: cuda:%d: NVML has %d bytes, %d of the context, the job says %d allocated, %d reserved: want %d foreign, %d rounded in %+v",
				c.what, d.Device, gpu.Usage, gpu.Context, d.Allocated, d.Reserved, gpu.Context+foreign, rounded, *x)
		}
	}
}

// lines wants each path through the job to hold what the job itself counts for it.
func (c *torchCheck) lines() {
	c.t.Helper()
	got, want := map[string]uint64{}, map[string]uint64{}
	for i := range c.s.Sites {
		if x := &c.s.Sites[i]; x.Process == c.process && x.Kind == ledger.Tensor && x.Device >= 0 && x.LiveBytes > 0 {
			got[fmt.Sprintf("cuda:%d %s", x.Device, pathOf(c.m.Stack(x.Stack)))] += x.LiveBytes
		}
	}
	for _, l := range c.p.Lines {
		want[fmt.Sprintf("cuda:%d %s", l.Device, pathOfLine(&l))] += l.Bytes
	}
	keys := slices.Concat(slices.Collect(maps.Keys(got)), slices.Collect(maps.Keys(want)))
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		if got[key] != want[key] {
			c.t.Errorf("%s: %s: %d bytes are live, the job says %d", c.what, key, got[key], want[key])
		}
	}
	if len(want) == 0 {
		c.t.Errorf("%s: the job names no lines", c.what)
	}
}

// pathOf names a stack by the job's own lines and the innermost function of Python's,
// of which PyTorch 2.6 with Python 3.13 reports a line too far where a call has several.
func pathOf(stack []callstack.Frame) string {
	here := filepath.Dir(realtorch.Script("jobs.py"))
	leaf, own := "", ""
	for _, f := range stack {
		if f.Python && leaf == "" {
			leaf = filepath.Base(f.File) + " " + path.Ext("." + f.Function)[1:]
		}
		if f.Python && filepath.Dir(f.File) == here {
			own += fmt.Sprintf(" < %s:%d", filepath.Base(f.File), f.Line)
		}
	}
	return leaf + own
}

func pathOfLine(l *realtorch.Line) string {
	file, name, _ := strings.Cut(l.Leaf, " ")
	file, _, _ = strings.Cut(file, ":")
	text := file
	if name != "" {
		text += " " + name
	}
	for _, frame := range l.Own {
		at, _, _ := strings.Cut(frame, " ")
		text += " < " + at
	}
	return text
}

// stacks wants the stacks of all tensors and segments to reach the start of their thread. It
// returns how many are of backward passes.
func (c *torchCheck) stacks() (backward int) {
	c.t.Helper()
	if n := c.s.Stats.Torn; n != 0 {
		c.t.Errorf("%s: %d stacks are torn", c.what, n)
	}
	for i := range c.s.Sites {
		x := &c.s.Sites[i]
		if x.Process != c.process || x.Kind != ledger.Tensor && !x.Segment {
			continue
		}
		stack := c.m.Stack(x.Stack)
		if len(stack) < 5 {
			c.t.Errorf("%s: a site of kind %d with %d bytes has %d frames", c.what, x.Kind, x.LiveBytes, len(stack))
			continue
		}
		engine := slices.ContainsFunc(stack, func(f callstack.Frame) bool { return strings.Contains(f.Function, "autograd::Engine::thread_main(") })
		if engine {
			backward++
		}
		if why := notWhole(stack, engine); why != "" {
			c.t.Errorf("%s: a stack %s:\n%s", c.what, why, text(stack))
		}
	}
	return backward
}

// notWhole returns why a stack does not lead from the start of its thread to an allocation.
func notWhole(stack []callstack.Frame, engine bool) string {
	for _, f := range stack {
		if f.Mark {
			return "is cut off"
		}
	}
	leaf, root := stack[0].Function, stack[len(stack)-1]
	if leaf != "c10::reportMemoryUsageToProfiler(void*, long, unsigned long, unsigned long, c10::Device)" && leaf != "cudaMalloc" && leaf != "cuMemCreate" {
		return "begins with " + leaf
	}
	// clone3 and start_thread, of a libc without names.
	thread := inLibrary(root, "libc.so.6") && inLibrary(stack[len(stack)-2], "libc.so.6")
	if root.Function != "_start" && !thread || engine && !thread {
		return "ends with " + root.Function
	}
	return ""
}

func inLibrary(f callstack.Frame, library string) bool {
	return f.Mapping != nil && strings.HasPrefix(filepath.Base(f.Mapping.Path), library)
}

func text(stack []callstack.Frame) string {
	var b strings.Builder
	for _, f := range stack {
		fmt.Fprintf(&b, "\t%s %s:%d\n", f.Function, filepath.Base(f.File), f.Line)
	}
	return b.String()
}
