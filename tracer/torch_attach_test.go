// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/realtorch"
)

// TestPyTorchsMemoryOfBeforeTheAttachIsKnown: what is older than the tracer is known
// by its sum, to the byte, while it becomes less.
func TestPyTorchsMemoryOfBeforeTheAttachIsKnown(t *testing.T) {
	m := newTorchMachine(t, 4)
	jobs := map[string]*realtorch.Job{
		"segments by cudaMalloc": m.job([]string{"CUDA_VISIBLE_DEVICES=0,1"}, "attach.py", "--devices=2", "--history"),
		"expandable segments":    m.job([]string{"CUDA_VISIBLE_DEVICES=3,2", realtorch.ExpandableSegments}, "attach.py", "--devices=2", "--history"),
	}
	points := map[string]realtorch.Point{}
	var pids []int
	for name, j := range jobs {
		points[name] = j.Next("old")
		pids = append(pids, j.Process.Pid)
	}
	m = m.attach(0, pids...)
	for name, j := range jobs {
		t.Run(name, func(t *testing.T) {
			c := m.check(t, points[name])
			for _, x := range c.s.Parts() {
				if x.Process != c.process {
					continue
				}
				gpu, d := c.usage.GPUs[c.gpuOf(x.UUID)], points[name].Devices[x.Device]
				if x.OlderAllocated != d.Allocated || x.OlderAllocated+x.OlderCached != d.Reserved || x.Foreign != gpu.Usage-d.Reserved || x.Unexplained != 0 {
					t.Errorf("at the attach, before all calls: %+v, NVML has %d bytes, PyTorch %+v", x, gpu.Usage, d)
				}
			}
			c.totals()
			for _, point := range []string{"new", "fewer", "gone", "emptied", "after"} {
				j.Go()
				c := m.check(t, j.Next(point))
				if point == "emptied" {
					continue // what was older than the attach is gone by frees without a size: the next report tells
				}
				c.totals()
				c.older(t)
				c.parts(0, 0)
			}
			if out, err := j.Finish(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func (c *torchCheck) gpuOf(uuid string) int {
	for i, x := range devicesOf(c.s) {
		if x == uuid {
			return i
		}
	}
	c.t.Fatalf("there is no GPU %q", uuid)
	return 0
}

// older wants what is older than the attach, and what has come since, to be what the job itself
// finds in its segments.
func (c *torchCheck) older(t *testing.T) {
	t.Helper()
	for _, d := range c.p.Devices {
		var before, since uint64
		for _, l := range c.p.Lines {
			switch {
			case l.Device != d.Device:
			case strings.HasPrefix(l.Own[0], realtorch.Site(t, "attach.py", "old")+" "):
				before += l.Bytes
			default:
				since += l.Bytes
			}
		}
		x := c.tensors(d.Device)
		t.Logf("%s: cuda:%d: %d older bytes and %d in their segments, %d since", c.what, d.Device, x.Older, x.OlderCached, x.LiveBytes)
		if x.Older != before || x.LiveBytes != since || since == 0 {
			t.Errorf("%s: cuda:%d: %d older bytes, %d since, the job says %d and %d", c.what, d.Device, x.Older, x.LiveBytes, before, since)
		}
		if x.OlderCached != d.OlderFree || x.Segments != d.Reserved-d.OlderReserved {
			t.Errorf("%s: cuda:%d: %d bytes of older segments are free, %d in newer ones, the job says %d and %d", c.what, d.Device, x.OlderCached, x.Segments, d.OlderFree, d.Reserved-d.OlderReserved)
		}
	}
}
