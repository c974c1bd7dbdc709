// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/report/export"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/allocator"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestErrorsNameTheRemedyAndHaveTheirExitCode(t *testing.T) {
	const none = fault.Kind(-1)
	for _, c := range []struct {
		err  error
		want string
		kind fault.Kind
	}{
		{&allocator.Error{Code: allocator.NoLibrary}, "vramprof ps lists", fault.NoProcess},
		{&allocator.Error{Code: allocator.NoDevices}, "when PyTorch has used a GPU", none},
		{&allocator.Error{Code: allocator.NoBlocks}, "try again", none},
		{&allocator.Error{Code: allocator.NoChain, Blocks: 3}, "try again when the process has allocated more", none},
		{&allocator.Error{Code: allocator.Contradicted, Blocks: 3, Bad: 2}, "vramprof record -p PID", none},
		{fmt.Errorf("open: %w", unix.EPERM), "as root", fault.NoPrivilege},
		{fmt.Errorf("open: %w", unix.EACCES), "as root", fault.NoPrivilege},
		{fmt.Errorf("open: %w", unix.ESRCH), "process 42 does not exist", none},
		{os.ErrDeadlineExceeded, "process 42: i/o timeout", none},
	} {
		got := explain(42, c.err)
		mark, marked := fault.Of(got)
		if !strings.Contains(got.Error(), c.want) || !strings.HasPrefix(got.Error(), "process 42") || marked != (c.kind != none) || marked && mark.Kind != c.kind {
			t.Errorf("%v: %v with %+v, want %q and %d", c.err, got, mark, c.want, c.kind)
		}
	}
}

func TestTheSummaryTellsHowFarAReadingInMotionMayBeOff(t *testing.T) {
	s := &Snapshot{took: 1234567 * time.Nanosecond, state: export.AllocatorState{PID: 42, Comm: "python3\x1b[1m", Snapshot: &allocator.Snapshot{
		Blocks:   []allocator.Block{{Address: 512, Size: 512, State: allocator.Active}, {Address: 1024, Size: 1024}},
		Segments: []allocator.Segment{{Address: 512, Size: 1536}},
		Devices:  []allocator.Device{{Exact: true}, {OffBlocks: 3, OffBytes: 2048}},
	}}}
	s.state.Warnings = []string{s.inMotion()}
	var b strings.Builder
	if err := s.Summary(&b); err != nil {
		t.Fatal(err)
	}
	want := `python3[1m (42): 1 block in 1 segment, 512 B allocated, 1.00 KiB cached; read in 1.2ms
! in motion: the process allocated during all readings of 2s; at most 3 blocks and 2.00 KiB off
`
	if b.String() != want {
		t.Errorf("wrote\n%swant\n%s", b.String(), want)
	}
}

// TestOnlyTheBlocksOfTheReadingHaveStacks: an address may have been given out again since, or have
// another size.
func TestOnlyTheBlocksOfTheReadingHaveStacks(t *testing.T) {
	s := &Snapshot{state: export.AllocatorState{Snapshot: &allocator.Snapshot{
		Blocks: []allocator.Block{
			{Address: 1 << 20, Size: 512, State: allocator.Active}, {Address: 2 << 20, Size: 512, State: allocator.Active},
			{Address: 3 << 20, Size: 512, State: allocator.Active}, {Address: 4 << 20, Size: 512}, {Address: 5 << 20, Size: 512, State: allocator.Active},
		},
		Devices: []allocator.Device{{Index: 0, From: 10, To: 20}},
	}}}
	s.findStacks(func() ([]ledger.TensorBlock, callstack.Stacks, error) {
		return []ledger.TensorBlock{
			{Address: 1 << 20, Size: 512, Time: 20, Stack: 7}, // as read
			{Address: 2 << 20, Size: 512, Time: 21, Stack: 7}, // allocated after the reading
			{Address: 3 << 20, Size: 1024, Time: 9, Stack: 7}, // of another size
			{Address: 4 << 20, Size: 512, Time: 9, Stack: 7},  // free when it was read
			{Address: 5 << 20, Size: 512, Time: 9, Stack: 8},  // without frames
		}, named{7: {{Function: "main"}}}, nil
	})
	if want := map[uint64]uint64{1 << 20: 7}; !maps.Equal(s.state.Made, want) || s.made != (sum{1, 512}) {
		t.Errorf("stacks of blocks %v with %+v, want %v", s.state.Made, s.made, want)
	}
	s.findStacks(func() ([]ledger.TensorBlock, callstack.Stacks, error) { return nil, nil, os.ErrPermission })
	if want := []string{"stack traces are unknown: permission denied"}; !slices.Equal(s.state.Warnings, want) {
		t.Errorf("warnings %q, want %q", s.state.Warnings, want)
	}
}

type named map[uint64][]callstack.Frame

func (n named) Stack(id uint64) []callstack.Frame { return n[id] }

func TestAnAllocatorInMotionIsReadAgainButNotForever(t *testing.T) {
	torn := func(blocks int) error { return &allocator.Error{Code: allocator.NoChain, Blocks: blocks} }
	a := attempts{begin: time.Now()}
	for i := range 100 { // each attempt finds another state
		if !a.again(torn(i)) || !a.again(nil) {
			t.Fatalf("gave up after %d attempts", i)
		}
	}
	n := 0
	for ; a.again(torn(7)); n++ {
	}
	if n != atRest {
		t.Errorf("%d attempts at rest, want %d", n, atRest)
	}
	if a.again(&allocator.Error{Code: allocator.NoLibrary}) || a.again(unix.ESRCH) {
		t.Error("a lasting error is tried again")
	}
	if a.begin = a.begin.Add(-motion); a.again(nil) {
		t.Error("read without end")
	}
}
