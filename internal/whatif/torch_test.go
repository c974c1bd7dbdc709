// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/internal/realtorch"
	"github.com/vramprof/vramprof/tracer/capture"
)

// history is what PyTorch itself has recorded of a job: see testdata/realtorch/history.py.
type history struct {
	Traces [][]entry
	Pools  []note
}

// note is which segments there are, when each device's trace has so many entries.
type note struct {
	At       []int
	Segments []segment
}

func (n *note) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[...]any{&n.At, &n.Segments})
}

type segment struct {
	Device        int
	Address, Size uint64
	Pool          [2]uint64
}

func (s *segment) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[...]any{&s.Device, &s.Address, &s.Size, &s.Pool})
}

type entry struct {
	Action        string
	Address, Size uint64
	Stream        uint64
}

func (e *entry) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[...]any{&e.Action, &e.Address, &e.Size, &e.Stream})
}

// record records a job with record --for whatif and under PyTorch's own history.
func record(t *testing.T, root realtorch.Root, gpus int, settings []string, job ...string) ([]*Captured, *history) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, truth := filepath.Join(dir, "job.vram"), filepath.Join(dir, "history.json")
	env := append(root.Env(t, gpus, 8<<30), settings...)
	job[0] = realtorch.Script(job[0])
	inner := root.Command(env, "history.py", append([]string{truth}, job...)...)
	cmd := exec.Command(path, append([]string{"record", "--for", "whatif", "--holders=off", "--no-oom", "-o", file, "--"}, inner.Args...)...)
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return load(t, file), historyOf(t, truth)
}

func load(t *testing.T, file string) []*Captured {
	t.Helper()
	r, err := capture.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	list, err := Load(r)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func historyOf(t *testing.T, file string) (h *history) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, &h)
	}
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// told is what a captured trace says in the words of PyTorch's history, with what was completed in
// between in order of addresses: the allocator asks its streams in no order.
func told(c *Captured) (list []entry) {
	for _, op := range c.Trace.Ops {
		if op.Kind > allocsim.FreeCompleted {
			continue
		}
		b := c.Trace.Blocks[op.Block]
		e := entry{"alloc", b.Address, b.Requested, c.Streams[b.Stream]}
		switch op.Kind {
		case allocsim.Free:
			e.Action = "free"
		case allocsim.FreeRequested:
			e.Action = "free_requested"
		case allocsim.FreeCompleted:
			e.Action = "free_completed"
		}
		list = append(list, e)
	}
	return inOrder(list)
}

// wanted is the history of one device.
func wanted(trace []entry) (list []entry) {
	for _, e := range trace {
		if e.Action == "alloc" || e.Action == "free_requested" || e.Action == "free_completed" {
			list = append(list, e)
		}
	}
	return inOrder(list)
}

// inOrder sorts what was completed between two other operations: the allocator asks its streams in
// no order. A request that is completed before anything else is a free.
func inOrder(list []entry) (sorted []entry) {
	for i := 0; i < len(list); i++ {
		e := list[i]
		n := i + 1
		for n < len(list) && list[n].Action == "free_completed" {
			n++
		}
		run := slices.Clone(list[i+1 : n])
		slices.SortFunc(run, func(a, b entry) int { return cmp.Compare(a.Address, b.Address) })
		at := slices.IndexFunc(run, func(x entry) bool { return x.Address == e.Address })
		if e.Action == "free_requested" && at >= 0 {
			e.Action = "free"
			run = slices.Delete(run, at, at+1)
		}
		sorted = append(append(sorted, e), run...)
		i = n - 1
	}
	return sorted
}

// compare compares a captured trace with PyTorch's history.
func compare(t *testing.T, c *Captured, h *history) (waits int) {
	t.Helper()
	got, want := told(c), wanted(h.Traces[c.Trace.Device])
	for i := range min(len(got), len(want)) {
		if got[i].Action == "free_requested" {
			waits++
		}
		if got[i] != want[i] && !(got[i].Action != "alloc" && got[i].Action == want[i].Action && got[i].Address == want[i].Address) {
			t.Fatalf("operation %d of %d: %+v, PyTorch recorded %+v", i, len(want), got[i], want[i])
		}
	}
	if len(got) < len(want) {
		t.Fatalf("%d operations, PyTorch recorded %d", len(got), len(want))
	}
	for _, e := range got[len(want):] { // after the history: the interpreter ends
		if e.Action == "alloc" {
			t.Errorf("PyTorch has not recorded %+v", e)
		}
	}
	comparePools(t, c, h)
	t.Logf("device %d: %d operations and %d blocks as PyTorch recorded them, %d frees waited for streams, settings %q, PyTorch %s", c.Trace.Device, len(got), len(c.Trace.Blocks), waits, c.Trace.Settings, c.Trace.Version)
	return waits
}

// poolAt returns the pool of the segment at an address when it was allocated, by the entry of a
// device's trace.
func (h *history) poolAt(device, entry int, address uint64) (id [2]uint64, ok bool) {
	for _, n := range h.Pools {
		if n.At[device] <= entry {
			continue
		}
		for _, s := range n.Segments {
			if s.Device == device && address >= s.Address && address < s.Address+s.Size {
				return s.Pool, true
			}
		}
		break // it was given back
	}
	return id, false
}

// comparePools compares the pool of each block with that of its segment.
func comparePools(t *testing.T, c *Captured, h *history) {
	t.Helper()
	ids, numbers := map[uint32][2]uint64{}, map[[2]uint64]uint32{}
	var blocks []uint32
	for _, op := range c.Trace.Ops {
		if op.Kind == allocsim.Malloc {
			blocks = append(blocks, op.Block)
		}
	}
	compared := 0
	for i, e := range h.Traces[c.Trace.Device] {
		if e.Action != "alloc" {
			continue
		}
		b := c.Trace.Blocks[blocks[compared]]
		id, ok := h.poolAt(c.Trace.Device, i, e.Address)
		if !ok {
			t.Fatalf("no segment of the block at %#x", e.Address)
		}
		if known, ok := ids[b.Pool]; ok && known != id || (b.Pool == 0) != (id == [2]uint64{}) {
			t.Fatalf("block %d at %#x is in pool %d: PyTorch has pools %v and %v", compared, b.Address, b.Pool, known, id)
		}
		if n, ok := numbers[id]; ok && n != b.Pool {
			t.Fatalf("block %d at %#x of pool %v has numbers %d and %d", compared, b.Address, id, n, b.Pool)
		}
		ids[b.Pool], numbers[id] = id, b.Pool
		compared++
	}
	t.Logf("device %d: %d blocks are in the pools that PyTorch has, of %d", c.Trace.Device, compared, len(ids))
}

// pending builds testdata/pending.c.
func pending(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pending.so")
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-O1", "-o", path, "testdata/pending.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// TestACaptureHasWhatPyTorchRecordedItself: requested size, stream and pool of each block, each
// free, and whether and until when its memory waits for streams. Then the trace replays byte for
// byte.
func TestACaptureHasWhatPyTorchRecordedItself(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("tracing needs root")
	}
	root := realtorch.Prepare(t)
	for _, c := range []struct {
		name     string
		settings []string
		gpus     int
		job      []string
		waits    bool // some frees are seen to wait
	}{
		{"varying sizes", nil, 1, []string{"train.py", "--steps=4", "--layers=2", "--width=64", "--vary", "--amp"}, false},
		{"pools and graphs", []string{"LD_PRELOAD=" + pending(t)}, 2, []string{"blocks.py", t.TempDir(), "8"}, true},
		{"pools and graphs, expandable", []string{realtorch.ExpandableSegments}, 2, []string{"blocks.py", t.TempDir(), "6", "2"}, false},
		{"streams that are busy", []string{"LD_PRELOAD=" + pending(t)}, 1, []string{"streams.py", "12"}, true},
		{"max_split", []string{"PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:32,roundup_power2_divisions:4"}, 1, []string{"streams.py", "12"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			list, h := record(t, root, c.gpus, c.settings, c.job...)
			if len(list) != c.gpus {
				t.Fatalf("%d traces, want %d", len(list), c.gpus)
			}
			for _, x := range list {
				if len(x.Conditions) > 0 {
					t.Errorf("conditions %+v", x.Conditions)
				}
				if waits := compare(t, x, h); c.waits && waits == 0 {
					t.Error("no free waited: the test shows nothing")
				}
				proof, err := allocsim.Verify(x.Trace)
				if err != nil {
					t.Errorf("device %d: %v", x.Trace.Device, err)
				}
				t.Logf("device %d: replayed %+v", x.Trace.Device, proof)
			}
		})
	}
}

// readAtAttach reports whether a capture that is still being written has a reading of an allocator.
func readAtAttach(file string) bool {
	r, err := capture.Open(file)
	if err != nil {
		return false
	}
	defer r.Close()
	list, err := Load(r)
	return err == nil && len(list) == 1 && len(list[0].Trace.Start) > 0
}

// TestALateAttachReplaysFromWhatTheAllocatorHad: the session begins in the middle of a job that
// stands still. The trace begins with what tracer/allocator reads then, and everything after it is
// as PyTorch recorded it.
func TestALateAttachReplaysFromWhatTheAllocatorHad(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("tracing needs root")
	}
	root := realtorch.Prepare(t)
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, settings := range []string{"", realtorch.ExpandableSegments} {
		t.Run(settings, func(t *testing.T) {
			dir := t.TempDir()
			file, truth := filepath.Join(dir, "job.vram"), filepath.Join(dir, "history.json")
			env := append(root.Env(t, 1, 8<<30), settings)
			j := root.Start(t, env, "history.py", truth, realtorch.Script("train.py"), "--steps=6", "--layers=2", "--width=64", "--vary", "--leak=1")
			j.Next("model")
			for range 2 {
				j.Go()
				j.Next("step")
			}
			cmd := exec.Command(path, "record", "--for", "whatif", "--holders=off", "--no-oom", "-o", file, "-p", fmt.Sprint(j.Process.Pid))
			cmd.Env = env
			progress, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			said := bufio.NewReader(progress)
			if line, err := said.ReadString('\n'); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			go io.Copy(io.Discard, said)
			for end := time.Now().Add(time.Minute); !readAtAttach(file); time.Sleep(100 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the allocator was not read within a minute")
				}
			}
			if out, err := j.Finish(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if err := cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			list, h := load(t, file), historyOf(t, truth)
			if len(list) != 1 || len(list[0].Conditions) > 0 || !list[0].Late || len(list[0].Trace.Start) == 0 {
				t.Fatalf("%d traces: %+v", len(list), list[0].Conditions)
			}
			c := list[0]
			got, want := told(c), wanted(h.Traces[0])
			after := 0
			for at := range want {
				if rest := want[at:]; len(rest) <= len(got) && slices.EqualFunc(rest, got[:len(rest)], func(a, b entry) bool {
					return a == b || a.Action != "alloc" && a.Action == b.Action && a.Address == b.Address
				}) {
					after = len(rest)
					break
				}
			}
			if after < len(want)/2 {
				t.Errorf("%d operations; only the last %d of %d that PyTorch recorded are among them", len(got), after, len(want))
			}
			proof, err := allocsim.Verify(c.Trace)
			if err != nil {
				t.Error(err)
			}
			t.Logf("%d segments at the start, the last %d of %d operations as PyTorch recorded them, replayed %+v", len(c.Trace.Start), after, len(want), proof)
		})
	}
}
