// SPDX-License-Identifier: Apache-2.0

package json

import (
	"bytes"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/report/text"
)

func TestSystemAllocatedMemoryIsReportedBesideTheGPUs(t *testing.T) {
	s, st := reporttest.SystemSnapshot(), reporttest.Stacks()
	for _, width := range []int{44, 80, 120} {
		var b bytes.Buffer
		if err := text.WriteSummary(&b, s, st, report.Options{}, text.Screen{Width: width}); err != nil {
			t.Fatal(err)
		}
		said := strings.Join(strings.Fields(b.String()), " ")
		for _, want := range []string{
			"43.0 GiB of 96.0 GiB used, NUMA node 1, ATS", "30.0 GiB of 121 GiB used, shares the host's memory",
			"Not in these sums: allocated by the system on the GPU's NUMA node solver [7] on cuda:0 1a2b3c4d: 40.0 GiB",
			"40.0 GiB of processes' memory, which the system allocated", "usage 2.29 GiB",
		} {
			if !strings.Contains(said, want) {
				t.Errorf("%d columns: no %q in\n%s", width, want, b.String())
			}
		}
	}
	r := NewLeaks(s, st, report.Options{})
	if len(r.System) != 1 || r.System[0] != (SystemReport{PID: 7, Device: "cuda:0", GPUUUID: s.GPUs[0].UUID, Bytes: 40 << 30, AgeNS: 1e9}) {
		t.Errorf("got %+v", r.System)
	}
	if g := r.GPUs[0]; g.Node == nil || *g.Node != 1 || g.Addressing != "ATS" || g.Integrated {
		t.Errorf("got %+v", g)
	}
	if g := r.GPUs[1]; g.Node != nil || !g.Integrated {
		t.Errorf("got %+v", g)
	}
	for _, p := range r.Planes {
		if p.Plane == report.PlaneSystem && (p.ApartBytes != 40<<30 || p.Bytes != 0) {
			t.Errorf("got %+v", p)
		}
	}
}
