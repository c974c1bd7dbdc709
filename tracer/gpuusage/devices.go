// SPDX-License-Identifier: Apache-2.0

package gpuusage

import (
	"fmt"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// Introduce takes what a process reports about its GPUs, and tells the books which it sees once
// NVML has listed them. It is for when the process is first seen, and again at its first
// allocation, since programs choose their GPUs by changing their environment before they start
// CUDA. b is the caller's transaction.
func (m *Monitor) Introduce(b ledger.Books, pid uint32, view View) {
	m.mu.Lock()
	p := m.processes[pid]
	if p == nil {
		p = &process{}
		m.processes[pid] = p
	}
	p.view, p.told = view, false
	m.mu.Unlock()
	m.tellDevices(b, pid)
}

// Forget drops what is known of a process that has ended, or runs another program now.
func (m *Monitor) Forget(pid uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.processes, pid)
	delete(m.listed, pid)
}

// tellDevices tells the books which GPUs an introduced process sees, unless they know it.
func (m *Monitor) tellDevices(b ledger.Books, pid uint32) {
	for _, in := range m.devices(pid) {
		b.Tell(in)
	}
}

func (m *Monitor) devices(pid uint32) []ledger.Input {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.processes[pid]
	switch {
	case p == nil || p.told:
	case len(m.gpus) > 0:
		p.told = true
		switch uuids := p.view.Ordinals(m.gpus, m.NVML); {
		case uuids == nil:
		case slices.Equal(uuids, p.denied):
			return []ledger.Input{ledger.Warning{PID: pid, Text: fmt.Sprintf("process %d uses GPUs that its environment does not name: what it reports about them is ignored", pid)}}
		default:
			p.uuids = uuids
			return []ledger.Input{ledger.Devices{PID: pid, UUIDs: uuids}}
		}
	case p.uuids == nil && p.view.seesOne():
		p.uuids = []string{""}
		return []ledger.Input{ledger.Devices{PID: pid, UUIDs: p.uuids}}
	}
	return nil
}

// doubt drops the ordinals of processes that hold memory on a GPU on which NVML does not list them,
// while it lists them on one that they do not name: then they are wrong. A listing on another GPU
// is no reason alone, as graphics run beside CUDA. It returns these processes: they are to be
// looked at once more, as CUDA may have started after the last time. held returns the ordinals on
// which a process holds memory.
func (m *Monitor) doubt(listed map[uint32]int, usage []ledger.Usage, held func(pid uint32) []int32) (pids []uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listed = listed
	for _, u := range usage {
		p := m.processes[u.PID]
		if p == nil || len(p.uuids) == 0 || slices.Contains(p.uuids, "") || m.isAmong(u.UUID, p.uuids) {
			continue
		}
		var on []string
		for _, x := range usage {
			if x.PID == u.PID {
				on = append(on, x.UUID)
			}
		}
		if slices.ContainsFunc(held(u.PID), func(d int32) bool { return int(d) >= len(p.uuids) || !m.isAmong(p.uuids[d], on) }) {
			p.denied, p.uuids = p.uuids, nil
			pids = append(pids, u.PID)
		}
	}
	return pids
}

// isAmong reports whether a GPU, its MIG instance, or the GPU that it is an instance of is in the
// list: NVML may count a process on either. m.mu is held.
func (m *Monitor) isAmong(uuid string, list []string) bool {
	return slices.Contains(list, uuid) || slices.ContainsFunc(m.gpus, func(gpu ledger.GPU) bool {
		return gpu.Parent != "" && (gpu.Parent == uuid && slices.Contains(list, gpu.UUID) || gpu.UUID == uuid && slices.Contains(list, gpu.Parent))
	})
}
