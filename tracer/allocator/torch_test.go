// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vramprof/vramprof/internal/realtorch"
	"github.com/vramprof/vramprof/tracer/holders/peek"
)

// truth is what PyTorch reports (testdata/realtorch/blocks.py).
type truth struct {
	Segments []struct {
		Device   int
		Address  uint64
		Pool     PoolID `json:"segment_pool_id"`
		PoolType string `json:"segment_type"`
		Stream   uint64
		Blocks   []struct {
			Address, Size uint64
			Requested     uint64 `json:"requested_size"`
			State         string
		}
	}
	Stats []map[string]int64
}

func (tr truth) lines() (all []string) {
	for _, g := range tr.Segments {
		for _, b := range g.Blocks {
			all = append(all, fmt.Sprintf("%#x %d %d %d %d %v %s %s of %#x", b.Address, b.Size, b.Requested, g.Stream, g.Device, g.Pool, g.PoolType, b.State, g.Address))
		}
	}
	slices.Sort(all)
	return all
}

func torchLines(s *Snapshot) (all []string) {
	for _, b := range s.Blocks {
		if b.State == Unmapped {
			continue // memory_snapshot leaves them out
		}
		kind, segment := "large", uint64(0)
		if b.Small {
			kind = "small"
		}
		if b.Segment >= 0 {
			segment = s.Segments[b.Segment].Address
		}
		all = append(all, fmt.Sprintf("%#x %d %d %d %d %v %s %s of %#x", b.Address, b.Size, b.Requested, b.Stream, b.Device, b.Pool, kind, b.State, segment))
	}
	slices.Sort(all)
	return all
}

// compareCounters compares the counters of one device with memory_stats.
func compareCounters(t *testing.T, c Counters, want map[string]int64) {
	t.Helper()
	for name, s := range map[string]Stat{"allocation": c.Allocations, "segment": c.Segments, "active": c.ActiveBlocks, "inactive_split": c.InactiveSplits,
		"allocated_bytes": c.Allocated, "reserved_bytes": c.Reserved, "active_bytes": c.Active, "inactive_split_bytes": c.InactiveSplit, "requested_bytes": c.Requested} {
		for field, got := range map[string]uint64{"current": s.Current, "peak": s.Peak, "allocated": s.Allocated, "freed": s.Freed} {
			if key := name + ".all." + field; int64(got) != want[key] {
				t.Errorf("%s is %d, want %d", key, got, want[key])
			}
		}
	}
	if int64(c.Retries) != want["num_alloc_retries"] || int64(c.OutOfMemory) != want["num_ooms"] {
		t.Errorf("%d retries, %d out-of-memory errors; want %d and %d", c.Retries, c.OutOfMemory, want["num_alloc_retries"], want["num_ooms"])
	}
}

func TestBlocksOfRealPyTorch(t *testing.T) {
	root := realtorch.Prepare(t)
	for name, setting := range map[string]string{"segments": "", "expandable": realtorch.ExpandableSegments} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			cmd := root.Command(append(root.Env(t, 2, 8<<30), setting), "blocks.py", folder, "7")
			in, _ := cmd.StdinPipe()
			out, _ := cmd.StdoutPipe()
			cmd.Stderr = os.Stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { in.Close(); cmd.Process.Kill(); cmd.Wait() })
			var layout *Layout
			points, blocks := bufio.NewScanner(out), 0
			for points.Scan() {
				if points.Text() == "point" {
					blocks += comparePoint(t, cmd.Process.Pid, filepath.Join(folder, "truth.json"), &layout)
					io.WriteString(in, "\n")
				}
			}
			if blocks < 500 {
				t.Errorf("only %d blocks were compared", blocks)
			}
			t.Logf("%d blocks compared, layout %+v", blocks, *layout)
		})
	}
}

func comparePoint(t *testing.T, pid int, file string, layout **Layout) int {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var tr truth
	if err := json.Unmarshal(text, &tr); err != nil {
		t.Fatal(err)
	}
	p, err := peek.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s, l, err := readOnce(p, *layout)
	if err != nil {
		t.Fatal(err)
	}
	*layout = l
	want, got := tr.lines(), torchLines(s)
	if !s.Exact() || !slices.Equal(got, want) {
		t.Errorf("%d blocks, want %d; devices %+v", len(got), len(want), s.Devices)
		for i := range min(len(got), len(want)) {
			if got[i] != want[i] {
				t.Fatalf("read %s\nwant %s", got[i], want[i])
			}
		}
	}
	for i, d := range s.Devices {
		compareCounters(t, d.Counters, tr.Stats[i])
	}
	return len(want)
}
