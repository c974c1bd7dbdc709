// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
)

func TestTensorsAsleepAreInTheSumOfNoGPU(t *testing.T) {
	s := reporttest.AsleepSnapshot()
	sum := map[string]int64{}
	for _, h := range report.Holdings(s) {
		sum[h.Plane] += h.Live
		if h.Apart() != (h.Plane == report.PlaneAsleep) {
			t.Errorf("%+v: apart %v", h, h.Apart())
		}
	}
	if sum[report.PlaneAsleep] != 60<<30 || sum[report.PlaneTensor] != 2<<30 || sum[report.PlaneCache] != 1<<30 || sum[report.PlaneBefore] != int64(300*reporttest.MiB) || sum[report.PlaneUnexplained] != 0 || sum[report.PlaneDriver] != 0 {
		t.Errorf("planes %v, want 60 GiB asleep beside NVML's 2 GiB of tensors, 1 GiB of cache and 300 MiB from before", sum)
	}
	p := parsed(t, s, reporttest.TorchStacks())
	var inuse, host, alloc uint64
	for _, x := range p.Sample {
		inuse, host, alloc = inuse+uint64(x.Value[3]), host+uint64(x.Value[5]), alloc+uint64(x.Value[1])
	}
	if inuse != s.Balances[0].Usage || host != 0 || alloc != 62<<30 {
		t.Errorf("the profile has %d bytes in use, %d of the host, %d allocated, want NVML's %d, none, and both tensors", inuse, host, alloc, s.Balances[0].Usage)
	}
}
