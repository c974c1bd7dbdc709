// SPDX-License-Identifier: Apache-2.0

package realtorch

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/fakecuda"
)

const (
	gib       = 1 << 30
	ncclBytes = 12 << 20 // per communicator, see testdata/realtorch/nccl.c
)

// small are arguments for a training that takes a second once PyTorch has started.
var small = []string{"--steps=3", "--layers=2", "--width=64"}

// held returns the books of the process that reported a point.
func held(t *testing.T, env []string, p Point) fakecuda.Process {
	t.Helper()
	processes, err := fakecuda.ReadUsage(env)
	if err != nil {
		t.Fatal(err)
	}
	for _, process := range processes {
		if int(process.PID) == p.PID && !process.Ended {
			return process
		}
	}
	t.Fatalf("process %d is not in the books: %+v", p.PID, processes)
	return fakecuda.Process{}
}

// compare checks that the books of a machine with one process agree with a point: the memory that
// PyTorch reserved is of the kind that expandable selects, the other kind has other bytes on device
// 0, the rest is free, and the lines add up.
func compare(t *testing.T, env []string, p Point, expandable bool, other uint64) {
	t.Helper()
	process := held(t, env, p)
	for i, d := range p.Devices {
		gpu := process.GPUs[i]
		segments, rest, wantRest := gpu.Device.Bytes, gpu.VMM.Bytes, uint64(0)
		if i == 0 {
			wantRest = other
		}
		if expandable {
			segments, rest = rest, segments
		}
		if segments != d.Reserved || rest != wantRest {
			t.Errorf("%s %d: device %d holds %d and %d bytes, want %d reserved and %d others", p.Point, p.Step, i, segments, rest, d.Reserved, wantRest)
		}
		if used := d.Total - d.Free; used != gpu.Usage || used < gpu.Context+d.Reserved {
			t.Errorf("%s %d: device %d: %d bytes in use, of %d reserved, the books have %d", p.Point, p.Step, i, used, d.Reserved, gpu.Usage)
		}
		var lines uint64
		for _, l := range p.Lines {
			if l.Device == i {
				lines += l.Bytes
			}
		}
		if lines != d.Allocated || d.Allocated == 0 || d.Allocated > d.Reserved {
			t.Errorf("%s %d: device %d: lines hold %d bytes, %d are allocated, %d reserved", p.Point, p.Step, i, lines, d.Allocated, d.Reserved)
		}
	}
}

// run calls visit at each step and returns the last point.
func run(t *testing.T, j *Job, steps int, visit func(Point)) Point {
	t.Helper()
	begin := time.Now()
	visit(j.Next("model"))
	for range steps {
		j.Go()
		visit(j.Next("step"))
	}
	j.Go()
	end := j.Next("end")
	visit(end)
	out, err := j.Finish()
	if err != nil || !strings.Contains(out, "steps/s") {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%.1fs from start to end, %s", time.Since(begin).Seconds(), strings.TrimSpace(out))
	return end
}

func TestPyTorchReservedMemoryMatchesTheFake(t *testing.T) {
	root := Prepare(t)
	for _, expandable := range []bool{false, true} {
		t.Run(fmt.Sprintf("expandable segments %v", expandable), func(t *testing.T) {
			t.Parallel()
			env := root.Env(t, 2, 4*gib)
			if expandable {
				env = append(env, ExpandableSegments)
			}
			j := root.Start(t, env, "train.py", append(small, "--devices=2", "--vary", "--checkpoint", "--amp")...)
			end := run(t, j, 3, func(p Point) { compare(t, env, p, expandable, 0) })
			if len(end.Devices) != 2 || end.Step != 3 {
				t.Errorf("the end is %+v", end)
			}
		})
	}
}

func TestPyTorchReportsMemoryByLine(t *testing.T) {
	t.Parallel()
	root := Prepare(t)
	env := root.Env(t, 1, 4*gib)
	const foreign = 5 << 20
	j := root.Start(t, env, "train.py", append(small, "--history", "--leak=1", "--cache=2", fmt.Sprint("--foreign=", foreign))...)
	var leaked []uint64
	end := run(t, j, 3, func(p Point) {
		process := held(t, env, p)
		if got := process.GPUs[0].Device.Bytes; got != p.Devices[0].Reserved+foreign {
			t.Errorf("%s %d: the device holds %d bytes, want %d and %d", p.Point, p.Step, got, p.Devices[0].Reserved, foreign)
		}
		if p.Point == "step" {
			leaked = append(leaked, p.At(Site(t, "train.py", "leak")).Bytes)
		}
	})
	if leaked[0] < 1<<20 || leaked[1] != 2*leaked[0] || leaked[2] != 3*leaked[0] {
		t.Errorf("the leaked graphs hold %d, want the same more each step", leaked)
	}
	if cached := end.At(Site(t, "train.py", "cache")); cached.Bytes != 2*256<<10 || cached.Blocks != 2 || cached.Reached != 2 {
		t.Errorf("the cache holds %+v, want two entries", cached)
	}
	var missed []Line
	for _, l := range end.Lines {
		if l.Reached < l.Blocks {
			missed = append(missed, l)
		}
	}
	// PyTorch's allocator provides cuBLAS's workspace.
	if len(missed) != 1 || missed[0].Blocks != 1 || missed[0].Bytes != 8519680 || !strings.HasPrefix(missed[0].Leaf, "linear.py:") {
		t.Errorf("without a Python holder: %+v, want only a workspace", missed)
	}
}

func TestPyTorchLoadsThroughPinnedMemory(t *testing.T) {
	t.Parallel()
	root := Prepare(t)
	env := root.Env(t, 1, 4*gib)
	j := root.Start(t, env, "train.py", append(small, "--loader=2", "--pin")...)
	run(t, j, 3, func(p Point) {
		compare(t, env, p, false, 0)
		// Batches in flight may be between PyTorch's cache and Python.
		if pinned := held(t, env, p).Pinned.Bytes; p.Pinned > pinned || (p.Point == "step" && pinned == 0) {
			t.Errorf("%s %d: %d bytes are pinned, Python has %d", p.Point, p.Step, pinned, p.Pinned)
		}
	})
}

func TestPyTorchRanksHaveAGPUEach(t *testing.T) {
	t.Parallel()
	root := Prepare(t)
	env := root.Env(t, 2, 4*gib)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	var ranks [2]*Job
	for i := range ranks {
		own := append(env[:len(env):len(env)], "MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port, "WORLD_SIZE=2",
			fmt.Sprint("RANK=", i), fmt.Sprint("CUDA_VISIBLE_DEVICES=", i))
		ranks[i] = root.Start(t, own, "train.py", append(small, "--ddp")...)
	}
	for _, name := range []string{"model", "step", "step", "step", "end"} {
		for i, j := range ranks {
			p := j.Next(name)
			process, d := held(t, env, p), p.Devices[0]
			gpu := process.GPUs[i]
			if gpu.Device.Bytes != d.Reserved || gpu.VMM.Bytes != ncclBytes || d.Total-d.Free != gpu.Usage || process.GPUs[1-i].Usage != 0 {
				t.Errorf("%s: rank %d reserved %d bytes, the books have %+v", name, i, d.Reserved, process.GPUs)
			}
		}
		for _, j := range ranks {
			j.Go()
		}
	}
	for i, j := range ranks {
		if out, err := j.Finish(); err != nil {
			t.Errorf("rank %d: %v\n%s", i, err, out)
		}
	}
}

func TestPyTorchOutOfMemory(t *testing.T) {
	root := Prepare(t)
	for _, way := range []struct {
		name   string
		points []string
		ends   string // expected in the output of a job that fails
	}{
		{"retry", []string{"before", "end"}, ""},
		{"fatal", []string{"before"}, "torch.OutOfMemoryError: CUDA out of memory"},
		{"caught", []string{"before", "failed", "end"}, ""},
		{"flood", []string{"before", "end"}, ""},
		{"foreign", []string{"before", "failed", "end"}, ""},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			env := root.Env(t, 1, 1324<<20)
			if way.name == "retry" {
				env = append(env, ExpandableSegments)
			}
			j := root.Start(t, env, "oom.py", way.name)
			for _, name := range way.points {
				compare(t, env, j.Next(name), way.name == "retry", 0)
				j.Go()
			}
			out, err := j.Finish()
			if (err != nil) != (way.ends != "") || !strings.Contains(out, way.ends) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func TestPyTorchJobWaitsForAnAttach(t *testing.T) {
	t.Parallel()
	root := Prepare(t)
	env := root.Env(t, 2, 4*gib)
	j := root.Start(t, env, "attach.py", "--devices=2", "--history")
	old := []uint64{}
	for _, name := range []string{"old", "new", "fewer", "gone", "emptied", "after"} {
		p := j.Next(name)
		compare(t, env, p, false, 0)
		old = append(old, p.At(Site(t, "attach.py", "old")).Bytes)
		j.Go()
	}
	if old[0] != old[1] || old[1] <= old[2] || old[2] == 0 || old[3] != 0 {
		t.Errorf("the old tensors hold %d, want constant, then fewer, then none", old)
	}
	if out, err := j.Finish(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestPyTorchReportsTheMachine(t *testing.T) {
	t.Parallel()
	root := Prepare(t)
	out, err := root.Command(root.Env(t, 2, 4*gib), "machine.py").CombinedOutput()
	if err != nil || string(out) != "a machine\n" {
		t.Errorf("%v\n%s", err, out)
	}
}
