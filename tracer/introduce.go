// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/tracer/environ"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// introduce tells the ledger on whose behalf a process runs and which GPUs it
// sees: when it is first seen, and again at its first allocation, since programs
// choose their GPUs by changing their environment before they start CUDA. Only the
// worker may call it: reading an environment can take a second.
func (t *Tracer) introduce(pid uint32) {
	variables, err := environ.Of(pid)
	if variables == nil && err != nil {
		return // gone
	}
	workload := t.host.Of(pid, variables)
	open, nodes := openGPUs(pid), nodesBelow(pid)
	t.desk.Take()
	defer t.turn.Done()
	p, ok := t.processes[pid]
	if !ok || !p.booked {
		return
	}
	t.turn.Tell(ledger.Process{PID: pid, Workload: workload})
	p.environ = slices.DeleteFunc(variables, func(v string) bool {
		return !strings.HasPrefix(v, "CUDA_") && !strings.HasPrefix(v, givenGPUs+"=")
	})
	p.introduced, p.contained, p.devices = true, workload.Container != "", false
	p.open, p.nodes = open, nodes
	t.setDevices(p)
}

// setDevices tells the ledger which GPUs the process sees, once NVML has
// listed them; in a turn.
func (t *Tracer) setDevices(p *process) {
	switch {
	case !p.introduced || p.devices:
	case len(t.gpus) > 0:
		p.devices = true
		switch uuids := p.ordinals(t.gpus, t.config.NVML); {
		case uuids == nil:
		case slices.Equal(uuids, p.denied):
			t.turn.Tell(ledger.Warning{PID: p.pid, Text: fmt.Sprintf("process %d uses GPUs that its environment does not name: what it tells of them is left aside", p.pid)})
		default:
			p.uuids = uuids
			t.turn.Tell(ledger.Devices{PID: p.pid, UUIDs: p.uuids})
		}
	case p.uuids == nil && p.seesOne():
		p.uuids = []string{""}
		t.turn.Tell(ledger.Devices{PID: p.pid, UUIDs: p.uuids})
	}
}

// doubt drops the ordinals of a process that NVML shows on a GPU which they do
// not name: then they are wrong. It is looked at once more, as CUDA may have started after the last time. in a turn.
func (t *Tracer) doubt(usage []ledger.Usage) {
	for _, u := range usage {
		p := t.processes[u.PID]
		if p == nil || len(p.uuids) == 0 || slices.Contains(p.uuids, u.UUID) || slices.Contains(p.uuids, "") || t.partOf(u.UUID, p.uuids) {
			continue
		}
		p.denied, p.uuids = p.uuids, nil
		t.turn.Tell(ledger.Devices{PID: p.pid, UUIDs: nil})
		t.jobs.add(job{jobIntroduce, p.pid})
	}
}

// partOf says whether uuid and one of the list are a GPU and its MIG instance: NVML may count a process on either.
func (t *Tracer) partOf(uuid string, list []string) bool {
	for _, gpu := range t.gpus {
		if gpu.Parent != "" && (gpu.Parent == uuid && slices.Contains(list, gpu.UUID) || gpu.UUID == uuid && slices.Contains(list, gpu.Parent)) {
			return true
		}
	}
	return false
}
