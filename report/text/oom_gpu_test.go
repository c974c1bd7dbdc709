// SPDX-License-Identifier: Apache-2.0

package text

import (
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
)

// TestGPUOfOOM: the other processes on the GPU come with their memory and the line that holds most.
func TestGPUOfOOM(t *testing.T) {
	s := reporttest.OOMSnapshot()
	g := GPUOfOOM(s, reporttest.Stacks(), oomOf(s))
	if g.GPU == nil || g.Own == 0 || g.Line.Function == "" || len(g.Users) < 2 {
		t.Fatalf("%+v", g)
	}
	var traced *report.OOMUser
	sum := g.Own
	for i := range g.Users {
		if u := &g.Users[i]; u.Traced {
			traced = u
		}
		sum += g.Users[i].Bytes
	}
	if traced == nil || traced.PID != 5151 || traced.Comm != "infer" || traced.Line == nil || traced.LineBytes != 12<<30 || traced.LineBytes > traced.Bytes {
		t.Errorf("%+v", traced)
	}
	if sum > g.GPU.Used {
		t.Errorf("the processes have %d bytes, NVML reports %d", sum, g.GPU.Used)
	}
}

// TestOtherProcessesHaveTheirLargestSite also where the largest sites are all of one process.
func TestOtherProcessesHaveTheirLargestSite(t *testing.T) {
	s := reporttest.OOMSnapshot()
	text := oomPage(t, s, oomOf(s), report.Options{Top: 2}, Screen{})
	want := "\nLargest site of each other process\n\n  12.0 GiB  Pool::take(unsigned long) src/pool.h:18\n    infer [5151] with 12.5 GiB"
	if !strings.Contains(text, want) {
		t.Errorf("no %q in\n%s", want, text)
	}
}
