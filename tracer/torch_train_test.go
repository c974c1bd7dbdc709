// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"testing"

	"github.com/vramprof/vramprof/internal/realtorch"
	"github.com/vramprof/vramprof/report"
	reportjson "github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// smallTraining stops before it has allocated anything, so that all is traced from then on.
var smallTraining = []string{"--begin", "--history", "--steps=3", "--layers=2", "--width=64"}

var trainingPoints = []string{"model", "step", "step", "step", "end"}

// ncclBytes is what a communicator of testdata/realtorch/nccl.c takes by cuMemCreate.
const ncclBytes = 12 << 20

func training(more ...string) []string {
	return append(smallTraining[:len(smallTraining):len(smallTraining)], more...)
}

// TestPyTorchTrainingIsBookedToTheByte traces several trainings at once, each tensor of them.
func TestPyTorchTrainingIsBookedToTheByte(t *testing.T) {
	m := newTorchMachine(t, 4)
	m.trace(nil)
	plain := m.job([]string{"CUDA_VISIBLE_DEVICES=0,1"}, "train.py", training("--devices=2", "--vary", "--checkpoint", "--amp")...)
	expandable := m.job([]string{"CUDA_VISIBLE_DEVICES=3,2", realtorch.ExpandableSegments}, "train.py", training("--devices=2", "--vary", "--leak=1", "--cache=2")...)
	ranks := m.ranks(2, 0)
	loader := m.job([]string{"CUDA_VISIBLE_DEVICES=1"}, "train.py", training("--loader=2", "--pin")...)
	emptying := m.job([]string{"CUDA_VISIBLE_DEVICES=0", realtorch.ExpandableSegments}, "attach.py", "--begin", "--history")
	for _, j := range []*realtorch.Job{plain, expandable, ranks[0], ranks[1], loader, emptying} {
		m.begun(j)
	}

	t.Run("segments by cudaMalloc, checkpoints, AMP", func(t *testing.T) {
		c := m.steps(t, plain, trainingPoints, func(c *torchCheck) { c.parts(0, 0) })
		c.segmentsAre(ledger.Device)
		c.backward()
	})
	t.Run("expandable segments, a leak and a cache", func(t *testing.T) {
		c := m.steps(t, expandable, trainingPoints, func(c *torchCheck) { c.parts(0, 0) })
		c.segmentsAre(ledger.VMM)
		c.backward()
	})
	t.Run("two ranks with a GPU each", func(t *testing.T) {
		ranks[0].Go()
		ranks[1].Go() // they meet in what they do
		for _, name := range trainingPoints {
			for _, j := range ranks {
				c := m.check(t, j.Next(name))
				c.all()
				c.parts(0, 0)
				if gpu, _ := c.gpu(0); gpu.VMM.Bytes != ncclBytes {
					t.Errorf("a communicator holds %d bytes, want %d", gpu.VMM.Bytes, ncclBytes)
				}
				if name == "end" {
					c.backward()
				}
			}
			ranks[0].Go()
			ranks[1].Go()
		}
	})
	t.Run("DataLoader with pinned memory", func(t *testing.T) {
		c := m.steps(t, loader, trainingPoints, func(c *torchCheck) {
			c.parts(0, 0)
			c.pinned()
		})
		c.backward()
	})
	t.Run("a cache that is emptied, of which PyTorch says nothing", func(t *testing.T) {
		m.steps(t, emptying, []string{"old", "new", "fewer", "gone", "emptied", "after"}, func(c *torchCheck) { c.parts(0, 0) })
	})
}

// ranks starts a process of distributed training for each of the GPUs.
func (m *torchMachine) ranks(gpus ...int) (list []*realtorch.Job) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		m.t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	for rank, gpu := range gpus {
		env := []string{"MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port, fmt.Sprint("WORLD_SIZE=", len(gpus)), fmt.Sprint("RANK=", rank), fmt.Sprint("CUDA_VISIBLE_DEVICES=", gpu)}
		list = append(list, m.job(env, "train.py", training("--ddp")...))
	}
	return list
}

// steps lets a job run on to its end, with checks at each point; it returns those of the last one.
func (m *torchMachine) steps(t *testing.T, j *realtorch.Job, points []string, also func(*torchCheck)) (c *torchCheck) {
	for _, name := range points {
		j.Go()
		c = m.check(t, j.Next(name))
		c.all()
		also(c)
	}
	j.Go()
	if out, err := j.Finish(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return c
}

// all is what holds at each point of a job that was traced from its start, with each stack.
func (c *torchCheck) all() {
	c.t.Helper()
	c.totals()
	c.whole()
	c.lines()
}

func (c *torchCheck) backward() {
	c.t.Helper()
	if n := c.stacks(); n < 10 {
		c.t.Errorf("%s: %d sites are of backward passes", c.what, n)
	}
}

// segmentsAre wants all segments to be of a kind, and in the machine's account of that kind.
func (c *torchCheck) segmentsAre(kind ledger.Kind) {
	c.t.Helper()
	for i := range c.s.Sites {
		if x := &c.s.Sites[i]; x.Process == c.process && x.Segment && x.Kind != kind {
			c.t.Errorf("%s: a segment is of kind %d, want %d", c.what, x.Kind, kind)
		}
	}
	for _, d := range c.p.Devices {
		gpu, _ := c.gpu(d.Device)
		if got := map[ledger.Kind]uint64{ledger.Device: gpu.Device.Bytes, ledger.VMM: gpu.VMM.Bytes}[kind]; got != d.Reserved {
			c.t.Errorf("%s: cuda:%d holds %d bytes, want %d", c.what, d.Device, got, d.Reserved)
		}
	}
}

// pinned wants the pinned memory to be that of the machine's account, on the host, and apart from
// what GPUs hold.
func (c *torchCheck) pinned() {
	c.t.Helper()
	var got uint64
	c.m.eventually("pinned memory is in the books", func() bool { // the DataLoader goes on beside the job
		got = 0
		r := c.m.leaksReport(c.t)
		for i := range r.Sites {
			if x := &r.Sites[i]; int(x.PID) == c.p.PID && (x.Kind == "pinned" || x.Plane == "host") {
				if x.Device != "host" || x.Kind != "pinned" || x.Plane != "host" {
					c.t.Errorf("%s: %s memory of plane %s on %s", c.what, x.Kind, x.Plane, x.Device)
				}
				got += x.LiveBytes
			}
		}
		return got == c.m.usage(uint32(c.p.PID)).Pinned.Bytes
	})
	if got < c.p.Pinned || got == 0 && c.p.Point == "step" {
		c.t.Errorf("%s: %d bytes are pinned, Python has %d", c.what, got, c.p.Pinned)
	}
}

// leaksReport is what "vramprof leaks --json" would print now.
func (m *torchMachine) leaksReport(t *testing.T) *reportjson.LeaksReport {
	t.Helper()
	var text bytes.Buffer
	r := new(reportjson.LeaksReport)
	if err := reportjson.WriteLeaks(&text, m.snapshot(), m, report.Options{Top: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text.Bytes(), r); err != nil {
		t.Fatal(err)
	}
	return r
}
