// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/realtorch"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/unwind"
)

const (
	foreignBytes  = 6 << 20 // whole pages of the driver: it counts what is asked for
	defaultSample = 1 << 20
)

// TestPyTorchsLeakIsFoundAndEveryByteHasItsPlace: a training keeps losses with their graphs. Beside
// that it has a cache that is full, batches of several sizes, and a library with memory of its own.
// One tracer is there from the start, one comes while the training waits and looks at every tensor,
// one comes while it runs.
func TestPyTorchsLeakIsFoundAndEveryByteHasItsPlace(t *testing.T) {
	m := newTorchMachine(t, 1)
	m.trace(func(c *Config) { c.Sample = defaultSample })
	j := m.job(nil, "train.py", "--begin", "--history", "--steps=1000000", "--every=40", "--sleep=0.01", "--layers=2", "--width=64",
		"--leak=4", "--cache=8", "--vary", fmt.Sprint("--foreign=", foreignBytes))
	next := func(name string) realtorch.Point { j.Go(); return j.Next(name) }
	m.begun(j)
	m.check(t, next("model")).wholeSum()
	before := next("step") // the cache is full
	m.check(t, before).wholeSum()

	every := m.attach(0, j.Process.Pid)
	c := every.check(t, before)
	for _, x := range c.s.Parts() {
		gpu, d := c.usage.GPUs[0], before.Devices[0]
		if x.OlderAllocated != d.Allocated || x.OlderAllocated+x.OlderCached != d.Reserved || x.Foreign != gpu.Usage-d.Reserved || x.Unexplained != 0 || x.Beyond() != 0 {
			t.Errorf("at the attach, before all calls: %+v, NVML has %d bytes, PyTorch %+v", x, gpu.Usage, d)
		}
	}
	j.Go()
	for range 5 {
		m.explained(before.PID)
		every.explained(before.PID)
	}
	c = every.check(t, j.Next("step"))
	c.lateSum()
	steady := 2*c.s.End - c.s.Begin // then the cache was full for the second half

	running := m.attachInTheRun(j, next)
	p := next("step")
	for ; clock.Now() < steady; p = next("step") {
		running.check(t, p).lateSum()
	}
	leaked := func(p realtorch.Point) uint64 { return p.At(realtorch.Site(t, "train.py", "leak")).Bytes }

	c = every.check(t, p)
	c.lateSum()
	c.leakIsFirst()
	if x := c.at("cache"); x.LiveBytes != 8*256<<10 || x.Growth != 0 || x.AllocBytes <= x.LiveBytes {
		t.Errorf("%s: the cache holds %+v, want 8 entries of 256 KiB, steady", c.what, x)
	}
	if got, want := c.at("leak").LiveBytes, leaked(p)-leaked(before); got != want || want == 0 {
		t.Errorf("every tensor is looked at, %d bytes of the leak are found, want %d", got, want)
	}
	c = m.check(t, p)
	c.wholeSum()
	c.leakIsFirst()
	got := c.at("leak").LiveBytes
	t.Logf("step %d: %d bytes of the leak are found in %d samples, of %d", p.Step, got, c.tensors(0).Sampled, leaked(p))
	if math.Abs(float64(got)/float64(leaked(p))-1) > 0.25 {
		t.Errorf("%d bytes of the leak are found in samples, want about %d", got, leaked(p))
	}
	c = running.check(t, p)
	c.lateSum()
	c.leakIsFirst()
}

// attachInTheRun begins a tracer while the job goes from one point to the next.
func (m *torchMachine) attachInTheRun(j *realtorch.Job, next func(string) realtorch.Point) (running *torchMachine) {
	attached := make(chan *torchMachine, 1)
	go func() {
		defer close(attached)
		late := m.attach(defaultSample, j.Process.Pid)
		late.loaded(uint32(j.Process.Pid)) // stack traces before are truncated
		attached <- late
	}()
	for {
		select {
		case running, ok := <-attached:
			if !ok {
				m.t.FailNow()
			}
			return running
		default:
			next("step")
		}
	}
}

// wholeSum is what holds for a tracer that was there from the start, lateSum for one that
// found the library's memory there.
func (c *torchCheck) wholeSum() {
	c.t.Helper()
	c.totals()
	c.whole()
	c.parts(0, 0)
}

func (c *torchCheck) lateSum() {
	c.t.Helper()
	c.totals()
	c.parts(foreignBytes, 0)
}

// slack is for what a job allocates and frees while a snapshot of it is taken: totals
// and blocks are not of one moment then.
const slack = 256 << 20

// explained wants the parts of NVML's figure to add up while the process runs: what they
// explain is what it had at some moment meanwhile.
func (m *torchMachine) explained(pid int) {
	m.t.Helper()
	least := m.usage(uint32(pid)).GPUs[0].Usage
	s := m.snapshot()
	most := m.usage(uint32(pid)).GPUs[0].Usage
	_, process := processOf(m.t, s, uint32(pid))
	for i, x := range s.Parts() {
		explained := x.Tensors + x.Cached + x.Driver + x.Rounding + x.OlderAllocated + x.OlderCached + x.Foreign
		if x.Process == process && (explained+slack < least || explained > most+slack || explained+uint64(x.Unexplained) != s.Balances[i].Usage+uint64(x.Since) || x.Unexplained+x.Beyond() != 0) {
			m.t.Errorf("while it runs: %+v, NVML has %d, then %d bytes", x, least, most)
		}
	}
}

// at sums the sites of tensors whose stacks pass a line of train.py.
func (c *torchCheck) at(site string) (sum ledger.Site) {
	c.t.Helper()
	for i := range c.s.Sites {
		if x := &c.s.Sites[i]; x.Process == c.process && x.Kind == ledger.Tensor && c.passes(x.Stack, site) {
			sum.LiveBytes += x.LiveBytes
			sum.AllocBytes += x.AllocBytes
			sum.Growth += x.Growth
		}
	}
	return sum
}

func (c *torchCheck) passes(stack uint64, site string) bool {
	c.t.Helper()
	at := realtorch.Site(c.t, "train.py", site)
	return slices.ContainsFunc(c.m.Stack(stack), func(f callstack.Frame) bool {
		return f.Python && fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line) == at
	})
}

// tableless reports whether a stack ends where the unwind tables were not loaded yet.
func tableless(stack []callstack.Frame) bool {
	return len(stack) > 0 && stack[len(stack)-1].Mark && strings.Contains(stack[len(stack)-1].Function, unwind.NoTables)
}

// leakIsFirst wants a line of the leak to be the first of all in the reports, no segment
// to be among them, and the library's memory to bear its name. A tracer that comes while the job
// runs has no line of what was kept before the unwind tables were loaded.
func (c *torchCheck) leakIsFirst() {
	c.t.Helper()
	list := slices.DeleteFunc(report.Leaks(c.s, report.Options{}), func(x ledger.Site) bool {
		return x.Process != c.process || c.m.late && tableless(c.m.Stack(x.Stack))
	})
	if len(list) == 0 || !c.passes(list[0].Stack, "leak") || list[0].Growth <= 0 {
		c.t.Fatalf("%s: the first of %d sites is not the leak: %+v\n%s", c.what, len(list), list[:1], text(c.m.Stack(list[0].Stack)))
	}
	foreign := 0
	for i := range list {
		x := &list[i]
		switch stack := c.m.Stack(x.Stack); {
		case x.Kind == ledger.Tensor:
		case x.LiveBytes == foreignBytes && len(stack) > 1 && inLibrary(stack[1], "libforeign.so") && c.passes(x.Stack, "foreign"):
			foreign++
		default:
			c.t.Errorf("%s: called a leak: %+v\n%s", c.what, *x, text(stack))
		}
	}
	if whole := !c.m.late; whole != (foreign == 1) {
		c.t.Errorf("%s: the library's memory is at %d sites", c.what, foreign)
	}
}
