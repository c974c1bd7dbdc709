// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/allocator"
)

// stateOfTwo has a segment on each of two devices, the second at the lower address, and a block
// that a torn walk found in none.
func stateOfTwo() *AllocatorState {
	return &AllocatorState{
		Snapshot: &allocator.Snapshot{
			Devices:  []allocator.Device{{Index: 0, Exact: true}, {Index: 1}},
			Segments: []allocator.Segment{{Address: 0x8000, Size: 0x2000, Stream: 7, Pool: allocator.PoolID{0, 3}}, {Address: 0x1000, Size: 0x800, Device: 1, Small: true, Base: 0x1000}},
			Blocks: []allocator.Block{
				{Address: 0x1000, Size: 0x800, Requested: 0x700, Device: 1, State: allocator.PendingFree, Segment: 1},
				{Address: 0x1800, Size: 0x800, Device: 1, State: allocator.Unmapped, Segment: -1},
				{Address: 0x8000, Size: 0x800, Requested: 0x7ff, State: allocator.Active},
				{Address: 0x8800, Size: 0x800, Requested: 0x800, State: allocator.Active},
				{Address: 0x9000, Size: 0x1000, Requested: 0x321},
				{Address: 0xf000, Size: 0x1000, State: allocator.Active, Segment: -1},
			},
		},
		Keepers: map[uint64]Keeper{0x8000: {Path: "model.\x1b[1m.weight", Steps: []string{"__main__", "model\n", "weight"}}},
		PID:     42, Comm: "py\x1bthon", Host: "box", Warnings: []string{"in motion"},
	}
}

func stateText(t *testing.T, s *AllocatorState) (map[string]any, string) {
	t.Helper()
	var file bytes.Buffer
	if err := TorchState(&file, s); err != nil {
		t.Fatal(err)
	}
	v, err := unpickle(file.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	top := v.(map[string]any)
	var b strings.Builder
	for _, x := range *top["segments"].(*[]any) {
		g := x.(map[string]any)
		fmt.Fprintf(&b, "%d %#x total %#x allocated %#x active %#x requested %#x stream %d %s pool %v expandable %v\n", g["device"], g["address"],
			g["total_size"], g["allocated_size"], g["active_size"], g["requested_size"], g["stream"], g["segment_type"], *g["segment_pool_id"].(*[]any), g["is_expandable"])
		for _, x := range *g["blocks"].(*[]any) {
			k := x.(map[string]any)
			fmt.Fprintf(&b, "  %#x %#x requested %#x %s %q %v\n", k["address"], k["size"], k["requested_size"], k["state"], names(k["frames"]), k["holder"])
		}
	}
	return top, b.String()
}

func TestTheStateOfAnAllocatorHasTheFieldsOfPyTorch(t *testing.T) {
	top, got := stateText(t, stateOfTwo())
	want := `0 0x8000 total 0x2000 allocated 0x1000 active 0x1000 requested 0xfff stream 7 large pool [0 3] expandable false
  0x8000 0x800 requested 0x7ff active_allocated ["weight" "model" "__main__"] model.[1m.weight
  0x8800 0x800 requested 0x800 active_allocated ["[no holder known]"] <nil>
  0x9000 0x1000 requested 0x321 inactive [] <nil>
1 0x1000 total 0x800 allocated 0x0 active 0x800 requested 0x700 stream 0 small pool [0 0] expandable true
  0x1000 0x800 requested 0x700 active_pending_free [] <nil>
`
	if got != want {
		t.Errorf("wrote\n%swant\n%s", got, want)
	}
	if n := len(*top["device_traces"].(*[]any)); n != 2 {
		t.Errorf("traces of %d devices", n)
	}
	if _, is := top["allocator_settings"]; is {
		t.Error("settings that are not known are written")
	}
	about := top["vramprof"].(map[string]any)
	if about["exact"] != false || about["comm"] != "python" || about["pid"] != int64(42) || !slices.Equal(*about["warnings"].(*[]any), []any{"in motion"}) {
		t.Errorf("about: %v", about)
	}
}

func TestBlocksOfAnotherAllocatorAreSegments(t *testing.T) {
	s := stateOfTwo()
	s.Backend, s.Segments, s.Blocks = allocator.Async, nil, s.Blocks[2:4]
	_, got := stateText(t, s)
	want := `0 0x8000 total 0x800 allocated 0x800 active 0x800 requested 0x7ff stream 0 small pool [0 0] expandable false
  0x8000 0x800 requested 0x7ff active_allocated ["weight" "model" "__main__"] model.[1m.weight
0 0x8800 total 0x800 allocated 0x800 active 0x800 requested 0x800 stream 0 small pool [0 0] expandable false
  0x8800 0x800 requested 0x800 active_allocated ["[no holder known]"] <nil>
`
	if got != want {
		t.Errorf("wrote\n%swant\n%s", got, want)
	}
}

func TestTheViewersOwnCodeReadsTheStateOfAnAllocator(t *testing.T) {
	viewer := viewerCommand(t)
	file := filepath.Join(t.TempDir(), "state.pickle")
	var b bytes.Buffer
	if err := TorchState(&b, stateOfTwo()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	got := answers[[]viewerAnswer](t, viewer, []string{file})[0]
	// It shows what programs requested, and in the timeline only blocks that are not freed.
	want := []viewerAnswer{{Reserved: 0x2000, Allocated: 0xfff, Peak: 0xfff}, {Reserved: 0x800, Allocated: 0x700}}
	if !slices.Equal(got, want) {
		t.Errorf("the viewer has %+v, want %+v", got, want)
	}
}

func TestWithoutHoldersBlocksHaveNoFrames(t *testing.T) {
	s := stateOfTwo()
	s.Keepers, s.Known, s.Settings = nil, true, "expandable_segments:True"
	top, got := stateText(t, s)
	if strings.Contains(got, "holder known") || strings.Count(got, "[] <nil>") != 4 {
		t.Errorf("wrote\n%s", got)
	}
	if got := top["allocator_settings"].(map[string]any)["PYTORCH_CUDA_ALLOC_CONF"]; got != s.Settings {
		t.Errorf("settings %v", got)
	}
}
