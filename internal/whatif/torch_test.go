// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/internal/realtorch"
	"github.com/vramprof/vramprof/tracer/capture"
)

// history is what PyTorch itself has recorded of a job: see testdata/realtorch/history.py.
type history struct {
	Traces [][]entry
	Pools  []segment
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

// binary builds the command once.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "vramprof-whatif-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "vramprof")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", path, "./cmd/vramprof")
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := binary(); err == nil && os.Getenv("VRAMPROF") == "" {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// record records a job with record --for whatif and under PyTorch's own history.
func record(t *testing.T, root realtorch.Root, gpus int, settings string, job ...string) ([]*Captured, *history) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, truth := filepath.Join(dir, "job.vram"), filepath.Join(dir, "history.json")
	env := append(root.Env(t, gpus, 8<<30), "PYTORCH_CUDA_ALLOC_CONF="+settings)
	job[0] = realtorch.Script(job[0])
	inner := root.Command(env, "history.py", append([]string{truth}, job...)...)
	cmd := exec.Command(path, append([]string{"record", "--for", "whatif", "--holders=off", "--no-oom", "-o", file, "--"}, inner.Args...)...)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	r, err := capture.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	list, err := Load(r)
	if err != nil {
		t.Fatal(err)
	}
	var h history
	b, err := os.ReadFile(truth)
	if err == nil {
		err = json.Unmarshal(b, &h)
	}
	if err != nil {
		t.Fatal(err)
	}
	return list, &h
}

// told is what a captured trace says in the words of PyTorch's history, with what was completed in between in order
// of addresses: the allocator asks its streams in no order.
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

func inOrder(list []entry) []entry {
	kept := list[:0]
	for _, e := range list {
		if n := len(kept); e.Action == "free_completed" && n > 0 && kept[n-1].Action == "free_requested" && kept[n-1].Address == e.Address {
			kept[n-1].Action = "free" // nothing was in between
		} else {
			kept = append(kept, e)
		}
	}
	list = kept
	for i := 0; i < len(list); i++ {
		n := i
		for n < len(list) && list[n].Action == "free_completed" {
			n++
		}
		slices.SortFunc(list[i:n], func(a, b entry) int { return cmp.Compare(a.Address, b.Address) })
		i = max(i, n)
	}
	return list
}

// compare compares a captured trace with PyTorch's history.
func compare(t *testing.T, c *Captured, h *history) {
	t.Helper()
	got, want := told(c), wanted(h.Traces[c.Trace.Device])
	waits := 0
	for i := range min(len(got), len(want)) {
		if got[i].Action == "free_requested" {
			waits++
		}
		if got[i] != want[i] && !(got[i].Action != "alloc" && got[i].Action == want[i].Action && got[i].Address == want[i].Address) {
			t.Fatalf("operation %d of %d: %+v, PyTorch recorded %+v", i, len(want), got[i], want[i])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d operations, PyTorch recorded %d", len(got), len(want))
	}
	comparePools(t, c, h)
	t.Logf("device %d: %d operations and %d blocks as PyTorch recorded them, %d frees waited for streams, settings %q, PyTorch %s", c.Trace.Device, len(got), len(c.Trace.Blocks), waits, c.Trace.Settings, c.Trace.Version)
}

// comparePools compares the pool of each block with that of its segment.
func comparePools(t *testing.T, c *Captured, h *history) {
	t.Helper()
	ids, numbers := map[uint32][2]uint64{}, map[[2]uint64]uint32{}
	compared := 0
	for i, b := range c.Trace.Blocks {
		if b.Address == 0 {
			continue // it was not given
		}
		var id *[2]uint64
		for j := range h.Pools {
			if s := &h.Pools[j]; s.Device == c.Trace.Device && b.Address >= s.Address && b.Address < s.Address+s.Size {
				id = &s.Pool
			}
		}
		if id == nil {
			continue // of an expandable segment that grew since
		}
		compared++
		if known, ok := ids[b.Pool]; ok && known != *id || (b.Pool == 0) != (*id == [2]uint64{}) {
			t.Fatalf("block %d at %#x is in pool %d: PyTorch has pools %v and %v", i, b.Address, b.Pool, known, *id)
		}
		if n, ok := numbers[*id]; ok && n != b.Pool {
			t.Fatalf("block %d at %#x of pool %v has numbers %d and %d", i, b.Address, *id, n, b.Pool)
		}
		ids[b.Pool], numbers[*id] = *id, b.Pool
	}
	t.Logf("device %d: %d of %d blocks are in the pools that PyTorch has, of %d", c.Trace.Device, compared, len(c.Trace.Blocks), len(ids))
}

// TestACaptureHasWhatPyTorchRecordedItself: requested size, stream and pool of each block, each free, and whether and until
// when its memory waits for streams. Then the trace replays byte for byte.
func TestACaptureHasWhatPyTorchRecordedItself(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("tracing needs root")
	}
	root := realtorch.Prepare(t)
	for _, c := range []struct {
		name, settings string
		gpus           int
		job            []string
	}{
		{"varying sizes", "", 1, []string{"train.py", "--steps=4", "--layers=2", "--width=64", "--vary", "--amp"}},
		{"streams", "", 1, []string{"streams.py", "12"}},
		{"pools and graphs", "", 2, []string{"blocks.py", t.TempDir(), "8"}},
		{"pools and graphs, expandable", "expandable_segments:True", 2, []string{"blocks.py", t.TempDir(), "6", "2"}},
		{"max_split", "max_split_size_mb:32,roundup_power2_divisions:4", 1, []string{"streams.py", "12"}},
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
				compare(t, x, h)
				proof, err := allocsim.Verify(x.Trace)
				if err != nil {
					t.Errorf("device %d: %v", x.Trace.Device, err)
				}
				t.Logf("device %d: replayed %+v", x.Trace.Device, proof)
			}
		})
	}
}
