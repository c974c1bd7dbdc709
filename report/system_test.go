// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report/reporttest"
)

func TestSystemAllocatedMemoryIsInTheSumOfNoGPU(t *testing.T) {
	s := reporttest.SystemSnapshot()
	var on int64
	seen := false
	for _, h := range Holdings(s) {
		if !h.Apart() {
			on += h.Live
		}
		if h.Plane == PlaneSystem {
			seen = true
			if h.Live != 40<<30 || h.UUID != s.GPUs[0].UUID || h.Device != 0 || !h.Apart() || h.OnHost() {
				t.Errorf("got %+v", h)
			}
		}
	}
	if uint64(on) != 2348*reporttest.MiB || !seen {
		t.Errorf("%d bytes on GPUs, want NVML's %d", on, 2348*reporttest.MiB)
	}
	if text := SystemText(s); !strings.HasPrefix(text, "40.0 GiB of processes' memory") || !strings.Contains(text, "(read up to 1.0s before this moment)") {
		t.Error(text)
	}
	if !slices.Equal(GPUText(&s.GPUs[0]), []string{"NUMA node 1", "ATS"}) || !slices.Equal(GPUText(&s.GPUs[1]), []string{"shares the host's memory"}) {
		t.Errorf("%q, %q", GPUText(&s.GPUs[0]), GPUText(&s.GPUs[1]))
	}
}

func TestEachPlaneIsListedOnce(t *testing.T) {
	list := Planes()
	slices.Sort(list)
	if len(slices.Compact(list)) != len(Planes()) {
		t.Error(list)
	}
	for _, plane := range list {
		if h := (Holding{Plane: plane}); h.Apart() != (slices.Contains(PlanesApart, plane) && plane != PlaneHost) {
			t.Errorf("%s: apart %v", plane, h.Apart()) // the host is known by its device
		}
	}
}
