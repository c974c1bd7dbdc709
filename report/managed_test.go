// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"

	"github.com/vramprof/vramprof/report/reporttest"
)

func TestManagedMemoryIsInTheSumOfNoGPU(t *testing.T) {
	s := reporttest.ManagedSnapshot()
	if b := s.Balances[0]; b.Live != 2<<30 || b.Gap != 0 {
		t.Errorf("balance %+v, want 2 GiB live and no gap", b)
	}
	if p := s.Parts()[0]; p.Driver != 2<<30 || p.Unexplained != 0 {
		t.Errorf("parts %+v, want 2 GiB of driver memory and nothing unexplained", p)
	}
	sum := map[string]int64{}
	for _, h := range Holdings(s) {
		if h.Apart() {
			sum["apart"] += h.Live
		}
		sum[h.Plane] += h.Live
		if h.Plane == PlaneManaged && (h.UUID != s.GPUs[0].UUID || h.Device != 0) {
			t.Errorf("managed memory is of %q, device %d, want the GPU that it was allocated for", h.UUID, h.Device)
		}
	}
	if sum[PlaneManaged] != 60<<30 || sum["apart"] != 60<<30 || sum[PlaneDriver] != 2<<30 || sum[PlaneUnexplained] != 0 {
		t.Errorf("planes %v, want 60 GiB managed apart from 2 GiB of driver memory", sum)
	}
}
