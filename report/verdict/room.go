// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"math"
	"slices"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// untilFull sets of each group that leaks when its GPU is full: at the rate of all that leaks
// there, in any traced process, and of what processes that are not traced add there.
func (j *judge) untilFull(list []Group) {
	if !slices.ContainsFunc(list, func(g Group) bool { return g.Class == Leaking && g.UntilFull > 0 }) {
		return
	}
	rates := j.othersGrow()
	gpus := make([]string, len(list))
	for i := range list {
		g := &list[i]
		if g.Class != Leaking || g.UntilFull == 0 {
			continue
		}
		if at := j.gpu(g.Process, g.Device); at != nil {
			gpus[i] = at.UUID
			rates[at.UUID] += max(g.Rate.Value, 0)
		}
	}
	for i := range list {
		g := &list[i]
		if rate := rates[gpus[i]]; gpus[i] != "" && rate > 0 {
			g.GPURate = rate
			g.UntilFull = span(g.UntilFull.Seconds() * g.Rate.Value / rate)
		}
	}
}

// othersGrow returns of each GPU by how many bytes per second its use grew in the later half of the
// session that traced processes do not explain.
func (j *judge) othersGrow() map[string]float64 {
	explained, rates := map[string]float64{}, map[string]float64{}
	for i := range j.s.Sites {
		x := &j.s.Sites[i]
		if x.Kind != ledger.Tensor && !x.Kind.OnHost() {
			if g := j.gpu(x.Process, x.Device); g != nil {
				explained[g.UUID] += j.grownInSession(x)
			}
		}
	}
	for i := range j.s.GPUs {
		g := &j.s.GPUs[i]
		if g.EarlierTime == 0 || g.Time <= g.EarlierTime || g.Used <= g.EarlierUsed {
			continue
		}
		grown := float64(g.Used-g.EarlierUsed) - explained[g.UUID]
		rates[g.UUID] = max(grown, 0) / (float64(g.Time-g.EarlierTime) / 1e9)
	}
	return rates
}

// grownInSession returns the growth of a site in the later half of the session: all that it has if
// its process began in it.
func (j *judge) grownInSession(x *ledger.Site) float64 {
	if j.s.Since(x.Process) > j.s.Begin {
		return float64(x.LiveBytes)
	}
	return float64(x.Growth)
}

// span returns seconds as a duration, at most a century or so.
func span(seconds float64) time.Duration {
	return time.Duration(min(seconds, math.MaxInt64/2e9) * float64(time.Second)).Round(time.Second)
}

// room returns how many bytes a site can still get on its GPU: what NVML reports as free and, for
// tensors, PyTorch's cache. It is unknown without NVML, for host memory and for managed memory. A
// process that has ended gets no more.
func (j *judge) room(x *ledger.Site) (float64, bool) {
	if j.s.Processes[x.Process].End != 0 || x.Kind.OnHost() || x.Kind == ledger.Managed || x.Device == ledger.CPUDevice {
		return 0, false
	}
	g := j.gpu(x.Process, x.Device)
	if g == nil {
		return 0, false
	}
	free := g.Total - min(g.Now(), g.Total)
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
