// SPDX-License-Identifier: Apache-2.0

package verdict

import "github.com/vramprof/vramprof/tracer/ledger"

// room returns how many bytes a site can still get on its GPU: what NVML reports as free and, for
// tensors, PyTorch's cache. It is unknown without NVML, for host memory and for managed memory.
func (j *judge) room(x *ledger.Site) (float64, bool) {
	if x.Kind.OnHost() || x.Kind == ledger.Managed || x.Device == ledger.CPUDevice {
		return 0, false
	}
	g := j.gpu(x.Process, x.Device)
	if g == nil {
		return 0, false
	}
	free := g.Total - min(g.Used, g.Total)
	if x.Kind == ledger.Tensor {
		if t := j.s.TensorsOn(x.Process, x.Device); t != nil {
			free += t.Cached + t.OlderCached
		}
	}
	return float64(free), true
}

// gpu returns the GPU of a device of a process, nil if it is unknown.
func (j *judge) gpu(process int, device int32) *ledger.GPU {
	uuid := ""
	if b := j.s.BalanceOf(process, device); b >= 0 {
		uuid = j.s.Balances[b].UUID
	} else if d := j.s.Processes[process].Devices; device >= 0 && int(device) < len(d) {
		uuid = d[device]
	}
	for i := range j.s.GPUs {
		if j.s.GPUs[i].UUID == uuid && uuid != "" {
			return &j.s.GPUs[i]
		}
	}
	return nil
}
