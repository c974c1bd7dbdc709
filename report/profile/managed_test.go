// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
)

func TestProfilesOfGPUsHaveNoManagedMemory(t *testing.T) {
	p := parsed(t, reporttest.ManagedSnapshot(), reporttest.Stacks())
	var inuse, managed uint64
	for _, x := range p.Sample {
		inuse += uint64(x.Value[3])
		if x.Label["plane"][0] == report.PlaneManaged {
			managed += uint64(x.Value[5])
			if x.Label["kind"][0] != "managed" || x.Label["device"][0] != "cuda:0" || x.Value[1] != 60<<30 {
				t.Errorf("a sample of managed memory has labels %v and values %v", x.Label, x.Value)
			}
		}
	}
	if inuse != 2348*reporttest.MiB || managed != 60<<30 {
		t.Errorf("inuse_space has %d bytes, want NVML's %d; host_space has %d of managed memory, want 60 GiB", inuse, 2348*reporttest.MiB, managed)
	}
	if text := strings.Join(p.Comments, "\n"); !strings.Contains(text, "managed memory is in host_space too, as NVML counts it for no process: 1 allocation, 60.0 GiB") {
		t.Errorf("no comment on managed memory in\n%s", text)
	}
}
