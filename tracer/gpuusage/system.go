// SPDX-License-Identifier: Apache-2.0

package gpuusage

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/deadline"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Memory on the NUMA nodes of GPUs is read apart from NVML, whose readings wait for nothing. The
// kernel walks the page tables of a process for each reading, under its lock of mappings: so a
// process is read at most once per second, and for at most 1 in systemRest of the time.
const (
	systemStep  = time.Second
	systemRest  = 100
	systemRound = 200 * time.Millisecond // after which the processes that are left wait for the next round
	systemStuck = time.Minute            // until a process that blocked its reader is read again
)

// systemReading is what a panic costs, in words.
const systemReading = "a reading of system-allocated memory"

// RunSystem tells the books how much memory of each process the system has allocated on the NUMA
// nodes of GPUs, until ctx ends, and once more then. It reads nothing while NVML lists no GPU that
// is a node.
func (m *Monitor) RunSystem(ctx context.Context) {
	tick := time.NewTicker(systemStep)
	defer tick.Stop()
	s := systemReader{Monitor: m, state: map[uint32]*systemState{}}
	for {
		s.round()
		select {
		case <-ctx.Done():
			s.round()
			return
		case <-tick.C:
		}
	}
}

// systemReader is the state of RunSystem.
type systemReader struct {
	*Monitor
	state map[uint32]*systemState // of processes that were read
}

type systemState struct {
	due  time.Time
	some bool // the books know that it has some
}

// nodes returns the GPUs that are NUMA nodes, by node, and the processes that are known.
func (m *Monitor) nodes() (uuids map[uint32]string, pids []uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	uuids = map[uint32]string{}
	for i := range m.gpus {
		if g := &m.gpus[i]; g.HasNode && g.Addressing != ledger.AddressingNone {
			uuids[g.Node] = g.UUID
		}
	}
	if len(uuids) == 0 {
		return nil, nil
	}
	for pid := range m.processes {
		pids = append(pids, pid)
	}
	return uuids, pids
}

// round reads the processes that are due, those that wait longest first.
func (s *systemReader) round() {
	defer s.Defects.Recovered(systemReading)
	uuids, pids := s.nodes()
	for pid := range s.state {
		if !slices.Contains(pids, pid) {
			delete(s.state, pid)
		}
	}
	begin := time.Now()
	for _, pid := range pids {
		if s.state[pid] == nil {
			s.state[pid] = &systemState{}
		}
	}
	slices.SortFunc(pids, func(a, b uint32) int { return s.state[a].due.Compare(s.state[b].due) })
	for _, pid := range pids {
		if x := s.state[pid]; !x.due.After(begin) && time.Since(begin) < systemRound {
			s.read(pid, x, uuids)
		}
	}
}

func (s *systemReader) read(pid uint32, x *systemState, uuids map[uint32]string) {
	begin := time.Now()
	on, cut, err := s.NodeMemory(pid)
	end := time.Now()
	x.due = end.Add(max(systemStep/2, systemRest*end.Sub(begin)))
	if errors.Is(err, deadline.ErrStuck) {
		x.due = end.Add(systemStuck)
	}
	if err != nil {
		return // it has ended, or the kernel knows no nodes
	}
	in := ledger.SystemReading{PID: pid, Time: clock.Now(), Cut: cut}
	for node, uuid := range uuids {
		if on[node] > 0 {
			in.On = append(in.On, ledger.SystemOn{UUID: uuid, Bytes: on[node]})
		}
	}
	if len(in.On) == 0 && !x.some {
		return
	}
	x.some = len(in.On) > 0
	tx := s.Sequencer.Begin()
	defer tx.Done()
	tx.Tell(in)
}
