// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
)

func TestSystemAllocatedMemoryIsInHostSpace(t *testing.T) {
	p := parsed(t, reporttest.SystemSnapshot(), reporttest.Stacks())
	var inuse, system int64
	for _, x := range p.Sample {
		inuse += x.Value[3]
		if x.Label["plane"][0] == report.PlaneSystem {
			system += x.Value[5]
			if x.Location[0].Line[0].Function.Name != report.MarkSystem || x.Label["device"][0] != "cuda:0" {
				t.Errorf("got %+v", x)
			}
		}
	}
	if uint64(inuse) != 2348*reporttest.MiB || system != 40<<30 {
		t.Errorf("inuse_space has %d bytes, host_space %d of system-allocated memory", inuse, system)
	}
	if text := strings.Join(p.Comments, "\n"); !strings.Contains(text, "system-allocated memory on the NUMA nodes of GPUs is in host_space too") {
		t.Errorf("no comment in\n%s", text)
	}
}
