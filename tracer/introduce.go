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
	t.mu.Lock()
	defer t.mu.Unlock()
	p, ok := t.processes[pid]
	if !ok || !p.booked {
		return
	}
	t.books.SetProcess(ledger.Process{PID: pid, Workload: workload})
	p.environ = slices.DeleteFunc(variables, func(v string) bool {
		return !strings.HasPrefix(v, "CUDA_") && !strings.HasPrefix(v, givenGPUs+"=")
	})
	p.introduced, p.contained, p.devices = true, workload.Container != "", false
	t.setDevices(p)
}

// setDevices tells the ledger which GPUs the process sees, once NVML has
// listed them; t.mu is held.
func (t *Tracer) setDevices(p *process) {
	if !p.introduced || p.devices || len(t.gpus) == 0 {
		return
	}
	p.devices = true
	gpus := t.gpus
	if p.contained {
		if gpus = given(p.environ, gpus); gpus == nil {
			return
		}
	}
	p.uuids = t.config.NVML.Ordinals(p.environ, gpus)
	t.books.SetDevices(p.pid, p.uuids)
}

// givenGPUs is the variable by which a container gets its GPUs (NVIDIA Container Toolkit).
const givenGPUs = "NVIDIA_VISIBLE_DEVICES"

// given returns the GPUs of a container with this environment: CUDA numbers only
// those. It returns nil when the environment does not tell and there are several.
func given(variables []string, gpus []ledger.GPU) []ledger.GPU {
	if len(gpus) == 1 {
		return gpus
	}
	list, _ := environ.Lookup(variables, givenGPUs)
	switch list {
	case "all":
		return gpus
	case "", "none", "void":
		return nil // it got them another way
	}
	named := strings.Split(list, ",")
	var some []ledger.GPU
	for _, gpu := range gpus {
		if slices.ContainsFunc(named, func(name string) bool {
			return name == gpu.UUID || gpu.Parent == "" && name == fmt.Sprint(gpu.Index) || gpu.Parent != "" && name == gpu.Parent
		}) {
			some = append(some, gpu)
		}
	}
	return some
}

// doubt drops the ordinals of a process that NVML shows on a GPU which they do
// not name: then they are wrong. t.mu is held.
func (t *Tracer) doubt(usage []ledger.Usage) {
	for _, u := range usage {
		p := t.processes[u.PID]
		if p == nil || len(p.uuids) == 0 || slices.Contains(p.uuids, u.UUID) || slices.Contains(p.uuids, "") || t.partOf(u.UUID, p.uuids) {
			continue
		}
		p.uuids = nil
		t.books.SetDevices(p.pid, nil)
		t.books.Warn(fmt.Sprintf("process %d uses %s, which its environment does not name: which GPUs its device numbers mean is unknown", u.PID, u.UUID))
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
