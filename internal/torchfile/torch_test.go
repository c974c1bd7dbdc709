// SPDX-License-Identifier: Apache-2.0

package torchfile

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/vramprof/vramprof/internal/realtorch"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// truth is what PyTorch reports when it has written a snapshot (testdata/realtorch/snapshots.py).
type truth struct {
	Devices []struct{ Allocated, Reserved, Peak uint64 }
	Lines   map[string]uint64 // live bytes by device and leaf: "cuda:0 weights"
}

// TestASnapshotOfPyTorchGivesItsOwnFigures: of the state at the dump with all stacks, of its peak
// by the traces.
func TestASnapshotOfPyTorchGivesItsOwnFigures(t *testing.T) {
	root := realtorch.Prepare(t)
	for _, c := range []struct {
		name, setting, entries string
		whole                  bool // the trace reaches back to the peak
	}{
		{"segments", "PYTORCH_CUDA_ALLOC_CONF=", "100000", true},
		{"expandable", realtorch.ExpandableSegments, "100000", true},
		{"a short trace", "PYTORCH_CUDA_ALLOC_CONF=", "150", false},
		{"a short trace of expandable segments", realtorch.ExpandableSegments, "150", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "snapshot.pickle")
			cmd := root.Command(append(root.Env(t, 2, 8<<30), c.setting), "snapshots.py", file, "60", c.entries)
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			var want truth
			if err := json.Unmarshal(out, &want); err != nil {
				t.Fatal(err)
			}
			checkTruth(t, file, &want, c.whole)
		})
	}
}

func checkTruth(t *testing.T, file string, want *truth, whole bool) {
	t.Helper()
	r, err := Open(file, false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s, err := r.Snapshot(r.End())
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Tensors) != len(want.Devices) {
		t.Fatalf("%d allocators, want %d", len(s.Tensors), len(want.Devices))
	}
	for _, x := range s.Tensors {
		d := want.Devices[x.Device]
		if x.Allocated != d.Allocated || x.Reserved != d.Reserved || x.LiveBytes != d.Allocated || x.Older != 0 || x.Segments != d.Reserved || x.OlderCached != 0 {
			t.Errorf("%+v\nwant %+v", x, d)
		}
		if whole && (x.Peak > d.Peak || x.Peak < d.Peak-d.Peak/20) || x.Peak < d.Allocated {
			t.Errorf("cuda:%d: peak %d, want %d", x.Device, x.Peak, d.Peak)
		}
	}
	lines := map[string]uint64{}
	for i := range s.Sites {
		x := &s.Sites[i]
		if x.Kind != ledger.Tensor || x.LiveBytes == 0 {
			continue
		}
		name := r.Stack(x.Stack)[0].Function
		if name == markNoStack {
			name = "-"
		}
		lines[fmt.Sprintf("cuda:%d %s", x.Device, name)] += x.LiveBytes
	}
	if !maps.Equal(lines, want.Lines) {
		t.Errorf("live bytes %v, want %v", lines, want.Lines)
	}
	if s.Stats.UnmatchedFrees != 0 || s.Stats.Reused != 0 || s.Stats.OutOfMemory != 1 || s.Stats.Lost != 0 || s.Stats.Evicted != 0 {
		t.Errorf("stats %+v", s.Stats)
	}
	for _, text := range s.Warnings {
		t.Log(text)
	}
	if r.Begin() >= r.End() {
		t.Errorf("a session from %d to %d", r.Begin(), r.End())
	}
}
