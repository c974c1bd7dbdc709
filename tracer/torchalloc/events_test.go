// SPDX-License-Identifier: Apache-2.0

package torchalloc

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// told keeps the events that the books were told, in words.
type told []string

func (j *told) Apply(e *ledger.Event) {
	*j = append(*j, fmt.Sprintf("op %d of %d on %d", e.Op, e.PID, e.Device))
}

func (j *told) Tell(ledger.Input) {}

// apart returns Allocators without a kernel half, and the books that it is to tell.
func apart(usesCUDA func(pid uint32) (uses, sure bool)) (*Allocators, *told) {
	return &Allocators{
		Options:   Options{UsesCUDA: usesCUDA, Begin: func() uint64 { return 1 }},
		processes: map[uint32]*process{}, left: Owners{},
	}, &told{}
}

// event is of PyTorch's allocator on a device; -1 is the host.
func event(pid uint32, kind bpf.Kind, device int) *bpf.Event {
	if device < 0 {
		return &bpf.Event{Pid: pid, Kind: kind, Result: int16(bpf.DeviceCPU), Device: -1}
	}
	return &bpf.Event{Pid: pid, Kind: kind, Result: int16(bpf.DeviceCUDA), Device: int16(device)}
}

func TestFirstReportsOfAForkedChildWaitUntilItUsesCUDA(t *testing.T) {
	allocator, free := func(pid uint32) string { return fmt.Sprintf("op %d of %d on 0", ledger.Allocator, pid) }, ledger.Free
	for _, c := range []struct {
		name string
		do   func(a *Allocators, b *told)
		want string
	}{
		{"it only frees", func(a *Allocators, b *told) { a.Handle(b, event(7, bpf.KindBlockFree, 0), nil) }, ""},
		{"it allocates a tensor", func(a *Allocators, b *told) { a.Handle(b, event(7, bpf.KindBlock, 0), nil) }, allocator(7) + fmt.Sprintf("; op %d of 7 on 0", ledger.Alloc)},
		{"it calls the driver", func(a *Allocators, b *told) { a.Disinherit(b, 7) }, allocator(7)},
		{"it frees on the host", func(a *Allocators, b *told) { a.Handle(b, event(7, bpf.KindBlockFree, -1), nil) }, fmt.Sprintf("op %d of 7 on %d", free, ledger.CPUDevice)},
		{"its devices are no GPUs", func(a *Allocators, b *told) { a.Handle(b, &bpf.Event{Pid: 7, Result: 9}, nil) }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, books := apart(func(uint32) (bool, bool) { return false, true })
			if device, ok := a.Handle(books, event(7, bpf.KindAllocator, 0), nil); device != 0 || !ok || len(*books) > 0 {
				t.Fatalf("device %d, %v; the books were told %q", device, ok, *books)
			}
			c.do(a, books)
			if got := strings.Join(*books, "; "); got != c.want {
				t.Errorf("the books were told %q, want %q", got, c.want)
			}
		})
	}
}

func TestWithoutNVMLAProcessThatIsOlderThanTheSessionUsesCUDA(t *testing.T) {
	own := uint32(os.Getpid())
	for begin, want := range map[uint64]int{1: 0, 1 << 63: 1} {
		a, books := apart(func(uint32) (bool, bool) { return false, false })
		a.Begin = func() uint64 { return begin }
		if a.Handle(books, event(own, bpf.KindAllocator, 0), nil); len(*books) != want || !a.Report(own) || a.Report(own+1) {
			t.Errorf("with a session from %d on the books were told %q", begin, *books)
		}
	}
}

func TestTotalsOfAnAllocatorThatTellsNone(t *testing.T) {
	value := bpf.TensorDevice{Allocated: 5, Live: 7}
	if x := totalsOf(7, 1, &value); x.Allocated != 0 || x.Live != 7 || len(x.Classes) != bpf.SizeClasses {
		t.Errorf("got %+v", x)
	}
	if value.Reserved = 9; totalsOf(7, 1, &value).Allocated != 5 {
		t.Error("totals are left out")
	}
}
