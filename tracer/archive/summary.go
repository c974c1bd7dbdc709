// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Bounds of an index.
const (
	maxProcesses = 2048
	maxOOMs      = 256
	maxName      = 256 // bytes
	maxGPUs      = 64  // of a process
)

// Process is a process of a capture.
type Process struct {
	PID       uint32 `json:"pid"`
	Comm      string `json:"comm"`
	Container string `json:"container,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Job       string `json:"job,omitempty"`
	Rank      string `json:"rank,omitempty"`
	Begin     uint64 `json:"begin"`             // ns of CLOCK_MONOTONIC, as in the capture
	End       uint64 `json:"end,omitempty"`     // 0: it ran on
	Started   uint64 `json:"started,omitempty"` // ledger.Process.Started
	// Highest bytes on all its GPUs together: as NVML reported them or, without NVML, as PyTorch's
	// allocator reserved them.
	Peak     uint64 `json:"peak"`
	PeakTime uint64 `json:"peak_time,omitempty"`
	OOMs     uint64 `json:"ooms,omitempty"`
}

// OOM is an out-of-memory error in a capture.
type OOM struct {
	Time uint64 `json:"time"`
	PID  uint32 `json:"pid"`
	Comm string `json:"comm"`
	API  string `json:"api"`
	Size uint64 `json:"size"` // bytes that were wanted; 2^64-1: unknown
}

// clean bounds a name that comes from a traced process.
func clean(s string) string { return untrusted.Clean(s[:min(len(s), maxName)]) }

// clean makes an index that was read from a file safe.
func (x *Index) clean() {
	x.Host, x.Boot, x.Session = clean(x.Host), clean(x.Boot), clean(x.Session)
	x.Processes, x.OOMs = x.Processes[:min(len(x.Processes), maxProcesses)], x.OOMs[:min(len(x.OOMs), maxOOMs)]
	for i := range x.Processes {
		p := &x.Processes[i]
		for _, s := range []*string{&p.Comm, &p.Container, &p.Pod, &p.Namespace, &p.Job, &p.Rank} {
			*s = clean(*s)
		}
	}
	for i := range x.OOMs {
		x.OOMs[i].Comm, x.OOMs[i].API = clean(x.OOMs[i].Comm), clean(x.OOMs[i].API)
	}
}

// summary collects the content of an index from the inputs of a capture, in little time and memory.
// Its zero value is empty.
type summary struct {
	processes []counted
	byPID     map[uint32]int
	more      uint64
	ooms      []OOM
	moreOOMs  uint64
	events    uint64
}

// counted is a process with what its peak is composed of.
type counted struct {
	Process
	workload ledger.Workload
	usage    uint64 // by NVML, in the reading that is being taken
	nvml     bool
	reserved []reserved
}

// reserved is what PyTorch's allocator has of one device.
type reserved struct {
	device int32
	bytes  uint64
}

// of returns the entry of a pid, nil without room.
func (s *summary) of(pid uint32) *counted {
	if i, ok := s.byPID[pid]; ok {
		return &s.processes[i]
	}
	return nil
}

// Apply implements ledger.Books.
func (s *summary) Apply(e *ledger.Event) {
	s.events++
	switch {
	case e.Told&ledger.ToldAllocated != 0:
		if p := s.of(e.PID); p != nil && !p.nvml {
			p.reserves(e.Device, e.Reserved, e.Time)
		}
	case e.Op == ledger.OutOfMemory:
		s.oom(e)
	case e.Op == ledger.Exit || e.Op == ledger.Exec:
		if p := s.of(e.PID); p != nil && p.End == 0 {
			p.End = max(e.Time, 1)
		}
	}
}

func (p *counted) reserves(device int32, bytes, time uint64) {
	var sum uint64
	i := slices.IndexFunc(p.reserved, func(r reserved) bool { return r.device == device })
	if i < 0 && len(p.reserved) < maxGPUs {
		i, p.reserved = len(p.reserved), append(p.reserved, reserved{device: device})
	}
	if i >= 0 {
		p.reserved[i].bytes = bytes
	}
	for _, r := range p.reserved {
		sum += r.bytes
	}
	if sum > p.Peak {
		p.Peak, p.PeakTime = sum, time
	}
}

func (s *summary) oom(e *ledger.Event) {
	p := s.of(e.PID)
	comm := ""
	if p != nil {
		p.OOMs++
		comm = p.Comm
	}
	if len(s.ooms) == maxOOMs {
		s.moreOOMs++
		return
	}
	s.ooms = append(s.ooms, OOM{Time: e.Time, PID: e.PID, Comm: comm, API: clean(e.API), Size: e.Size})
}

// Tell implements ledger.Books.
func (s *summary) Tell(in ledger.Input) {
	switch in := in.(type) {
	case ledger.Process:
		s.process(&in)
	case ledger.UsageReading:
		s.usage(&in)
	}
}

func (s *summary) process(in *ledger.Process) {
	p := s.of(in.PID)
	if p == nil || p.End != 0 && in.Begin > p.End {
		if p = s.add(in.PID, in.Begin); p == nil {
			s.more++
			return
		}
	}
	p.Comm, p.Started = cmp.Or(clean(in.Comm), p.Comm), cmp.Or(in.Started, p.Started)
	if in.Workload != (ledger.Workload{}) {
		p.workload = in.Workload
		p.Container, p.Pod, p.Namespace = clean(in.Container), clean(in.Pod), clean(in.Namespace)
		p.Job, p.Rank = clean(in.Job), clean(in.Rank)
	}
}

// add adds a process. If there are too many, those that have ended and had little go.
func (s *summary) add(pid uint32, begin uint64) *counted {
	if s.byPID == nil {
		s.byPID = map[uint32]int{}
	}
	if len(s.processes) == maxProcesses && !s.compact() {
		return nil
	}
	s.byPID[pid] = len(s.processes)
	s.processes = append(s.processes, counted{Process: Process{PID: pid, Begin: begin}})
	return &s.processes[len(s.processes)-1]
}

// compact drops the lesser half of the processes that have ended, by out-of-memory errors and peak.
func (s *summary) compact() bool {
	var ended []int
	for i := range s.processes {
		if s.processes[i].End != 0 {
			ended = append(ended, i)
		}
	}
	slices.SortStableFunc(ended, func(a, b int) int {
		x, y := &s.processes[a], &s.processes[b]
		return cmp.Or(cmp.Compare(min(x.OOMs, 1), min(y.OOMs, 1)), cmp.Compare(x.Peak, y.Peak))
	})
	drop := make(map[int]bool, len(ended)/2)
	for _, i := range ended[:(len(ended)+1)/2] {
		drop[i] = true
	}
	kept := s.processes[:0]
	for i := range s.processes {
		if !drop[i] {
			kept = append(kept, s.processes[i])
		}
	}
	clear(s.processes[len(kept):])
	s.processes, s.more = kept, s.more+uint64(len(drop))
	clear(s.byPID)
	for i := range s.processes { // the newest of a pid is last
		s.byPID[s.processes[i].PID] = i
	}
	return len(drop) > 0
}

func (s *summary) usage(in *ledger.UsageReading) {
	for _, u := range in.Usages {
		if p := s.of(u.PID); p != nil {
			p.usage += u.Bytes
		}
	}
	for _, u := range in.Usages {
		p := s.of(u.PID)
		if p == nil || p.usage == 0 {
			continue
		}
		if !p.nvml {
			p.nvml, p.Peak = true, 0
		}
		if p.usage > p.Peak {
			p.Peak, p.PeakTime = p.usage, in.Time
		}
		p.usage = 0
	}
}

// next returns the summary of the capture after this one: of the processes that run on.
func (s *summary) next() summary {
	n := summary{byPID: map[uint32]int{}}
	for i := range s.processes {
		p := s.processes[i]
		if p.End != 0 {
			continue
		}
		p.Peak, p.PeakTime, p.OOMs, p.nvml = 0, 0, 0, false
		n.byPID[p.PID] = len(n.processes)
		n.processes = append(n.processes, p)
	}
	return n
}

// introduce tells the names of the processes, so that they can be read from a capture without the
// opening before them.
func (s *summary) introduce(to ledger.Books) {
	for i := range s.processes {
		p := &s.processes[i]
		to.Tell(ledger.Process{PID: p.PID, Comm: p.Comm, Begin: p.Begin, Started: p.Started, Workload: p.workload})
	}
}

// index returns what has been collected. It shares nothing with s.
func (s *summary) index() *Index {
	x := &Index{Processes: make([]Process, 0, len(s.processes)), More: s.more, OOMs: slices.Clone(s.ooms), MoreOOMs: s.moreOOMs}
	for i := range s.processes {
		x.Processes = append(x.Processes, s.processes[i].Process)
	}
	slices.SortStableFunc(x.Processes, func(a, b Process) int { return cmp.Compare(b.Peak, a.Peak) })
	return x
}
