// SPDX-License-Identifier: Apache-2.0

package export

import (
	"fmt"
	"io"
	"slices"

	"github.com/vramprof/vramprof/internal/pickle"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Torch writes the memory of one process as torch.cuda.memory._dump_snapshot does: a pickle for
// pytorch.org/memory_viz and torch/cuda/_memory_viz.py. The snapshot must be of the collector's
// ledger, as of now.
//
// PyTorch's segments and tensors appear as in its own snapshots. So do all other driver
// allocations, each as a segment with one block: NCCL's buffers, those of libraries and extensions.
// Memory from before the attach whose address is unknown is one block per plane at an invented
// address, from 2^52 on, and so is each CUDA array. Together the segments of a GPU add up to what
// NVML reports, or to more where blocks with an address alone are beyond that. Blocks outside the
// sample have the frame "[not sampled]". If the process was walked, blocks have their holder as the
// leaf of their frames, and memory from before the attach is one block for each holder, whose path
// is its stack. Page-locked host memory, and imported memory, which its owner has, are left out.
//
// The trace has the newest events. "time_us" is wall-clock time. As in PyTorch's snapshots,
// "frames" of a free are those of its allocation.
func Torch(w io.Writer, c *Collector, s *ledger.Snapshot, st callstack.Stacks) error {
	pid, space, err := c.chosen()
	if err != nil {
		return fmt.Errorf("torch snapshot: %w", err)
	}
	t := &torch{
		s: space, snapshot: s, st: st, process: -1,
		frameLists: newFrameLists(pickle.NewWriter(w)),
	}
	for i := range s.Processes {
		if s.Processes[i].PID == pid {
			t.process = i // of several with the pid, the newest
		}
	}
	if t.process >= 0 {
		t.kept = report.KeptBy(s)[t.process]
	}
	t.prepare()
	t.write()
	if err := t.p.Close(); err != nil {
		return fmt.Errorf("write torch snapshot: %w", err)
	}
	return nil
}

// prepare decides which driver memory is PyTorch's, and on which device unknown memory is.
func (t *torch) prepare() {
	s := t.s
	for i := range s.listed { // blocks outside of all segments are older than the attach
		b := &s.listed[i]
		if b.Size == 0 || b.Size > maxSize || b.Address >= addressEnd || b.Size > addressEnd-b.Address || s.segments.Len() >= maxExtents {
			continue
		}
		if s.segments.At(b.Address) == nil {
			s.cover(b.Address, b.Address+b.Size, deviceOf(b.Device), s.listedAt)
		}
	}
	t.reports = s.blocks.Len() > 0 || len(s.hosts) > 0
	for i := range t.snapshot.Tensors {
		x := &t.snapshot.Tensors[i]
		t.reports = t.reports || x.Process == t.process && x.Device != ledger.CPUDevice
	}
	for i := range t.snapshot.Sites {
		if x := &t.snapshot.Sites[i]; x.Segment && x.Process == t.process {
			s.hosts[siteKey{x.Stack, x.API}] = true
		}
	}
	known := make([]bool, maxDevices)
	see := func(device int32) {
		if device >= 0 && device < maxDevices {
			known[device] = true
		}
	}
	for _, e := range s.trace.all() {
		see(t.learned(e.id, e.device))
	}
	for g := range s.segments.From(0) {
		see(g.Value.device)
	}
	for i := range t.snapshot.Balances {
		if x := &t.snapshot.Balances[i]; x.Process == t.process {
			see(x.Device)
		}
	}
	for i, on := range known {
		if on {
			t.unknown = int32(i) + 1
		}
	}
	if t.unknown == 1 || t.unknown > 0 && !slices.Contains(known[:t.unknown-1], true) {
		t.unknown-- // it can only be this one
	}
	t.entries = make([]int, maxDevices+1)
	t.placeListed()
	for _, b := range t.listed {
		if b.after >= 0 {
			t.entries[b.device]++
		}
	}
	for _, e := range s.trace.all() {
		t.entries[t.device(e.id, e.device)]++
	}
}

func (t *torch) write() {
	p := t.p
	p.Dict()
	p.String("segments")
	devices := t.segments()
	p.String("device_traces")
	l := p.List()
	last := devices
	for d, n := range t.entries {
		if n > 0 {
			last = max(last, d+1)
		}
	}
	for d := range last {
		l.Item()
		t.trace(int32(d))
	}
	l.End()
	p.String("vramprof")
	t.about()
	p.EndDict()
}

// about writes what the format has no fields for, for people; viewers ignore it.
func (t *torch) about() {
	p := t.p
	p.Dict()
	p.StringItem("host", untrusted.Clean(t.snapshot.Host))
	if t.process >= 0 {
		process := &t.snapshot.Processes[t.process]
		p.UintItem("pid", uint64(process.PID))
		p.StringItem("comm", untrusted.Clean(process.Comm))
	}
	p.UintItem("trace_events_dropped", t.s.trace.dropped)
	p.UintItem("events_left_out", t.s.left+t.evicted())
	p.UintItem("events_lost", t.snapshot.Stats.Lost)
	writeWarnings(p, t.snapshot.Warnings)
	p.EndDict()
}

func writeWarnings(p *pickle.Writer, warnings []string) {
	p.String("warnings")
	l := p.List()
	for _, text := range warnings {
		l.Item()
		p.String(untrusted.Clean(text))
	}
	l.End()
}

// evicted returns the number of the process's allocations that the ledger had no room for.
func (t *torch) evicted() (n uint64) {
	for i := range t.snapshot.Sites {
		if x := &t.snapshot.Sites[i]; x.Process == t.process {
			n += x.Evicted
		}
	}
	return n
}
