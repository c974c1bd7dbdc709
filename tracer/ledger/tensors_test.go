// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"testing"
	"time"
)

// tensorRules: blocks and totals of PyTorch's allocator.
var tensorRules = []rule{
	{"each size class adds up to its exact total, the largest remainder is rounded up", `
sampling 0.5
alloc t=1 addr=1000 size=512 stack=1 dev=0 kind=tensor space=blocks api=torch
alloc t=1 addr=2000 size=512 stack=2 dev=0 kind=tensor space=blocks api=torch
alloc t=1 addr=3000 size=512 stack=2 dev=0 kind=tensor space=blocks api=torch
alloc t=1 addr=4000 size=2048 stack=2 dev=0 kind=tensor space=blocks api=torch
alloc t=1 addr=5000 size=2048 stack=3 dev=0 kind=tensor space=blocks api=torch
free t=2 addr=5000 space=blocks
totals t=3 dev=0 allocated=100000 reserved=100000 512:9/4608-4/2048 2048:8/16384-4/8192 4096:3/12288-1/4096`, `
process 7
total cuda:0 tensor live 11/18944 alloc 20/33280 peak 18944@3
site 2 cuda:0 tensor live 7/9899 alloc 7/9899 oldest 1 torch
site 0 cuda:0 tensor live 2/8192 alloc 7/14336 oldest 0 torch
site 1 cuda:0 tensor live 2/853 alloc 2/853 oldest 1 torch
site 3 cuda:0 tensor live 0/0 alloc 4/8192 oldest 0 torch
tensors 7 cuda:0 live 11/18944 alloc 20/33280 sampled 4 allocated 100000 reserved 100000 peak 100000 at 3 error 591 older 81056`},

	{"a block counts as many times as its rate was lower, and classes with few blocks are divided together", `
sampling 0.5
alloc t=1 addr=1000 size=512 stack=1 dev=0 kind=tensor space=blocks api=torch
alloc t=1 addr=2000 size=512 stack=2 dev=0 halvings=2 kind=tensor space=blocks api=torch
alloc t=1 addr=3000 size=2048 stack=1 dev=0 kind=tensor space=blocks api=torch
alloc t=1 addr=4000 size=2048 stack=2 dev=0 halvings=1 kind=tensor space=blocks api=torch
alloc t=1 addr=5000 size=2048 stack=3 dev=0 halvings=3 kind=tensor space=blocks api=torch
alloc t=1 addr=6000 size=4096 stack=4 dev=0 halvings=3 kind=tensor space=blocks api=torch
alloc t=1 addr=7000 size=281474976710656 stack=4 dev=0 halvings=255 kind=tensor space=blocks api=torch
free t=2 addr=4000 space=blocks
free t=2 addr=5000 space=blocks
totals t=3 dev=0 allocated=100000 reserved=100000 512:10/5120-0/0 2048:21/43008-20/40960 4096:1/4096-0/0`, `
process 7
total cuda:0 tensor live 12/11264 alloc 32/52224 peak 11264@3
site 4 cuda:0 tensor live 2/5783 alloc 2/5783 oldest 1 torch
site 2 cuda:0 tensor live 8/4096 alloc 12/12288 oldest 1 torch
site 1 cuda:0 tensor live 2/1385 alloc 2/1385 oldest 1 torch
site 3 cuda:0 tensor live 0/0 alloc 16/32768 oldest 0 torch
tensors 7 cuda:0 live 12/11264 alloc 32/52224 sampled 4 halvings 3 allocated 100000 reserved 100000 peak 100000 at 3 error 407 older 88736`},

	{"with every block in the sample sites are exact", `
alloc t=1 addr=1000 size=512 stack=1 dev=0 kind=tensor space=blocks api=torch
alloc t=1 addr=2000 size=600 stack=2 dev=0 kind=tensor space=blocks api=torch
alloc t=1 addr=3000 size=512 stack=2 dev=0 kind=tensor space=blocks api=torch
alloc t=1 addr=4000 size=2048 stack=2 dev=0 kind=tensor space=blocks api=torch
alloc t=1 addr=5000 size=4096 stack=3 dev=1 kind=tensor space=blocks api=torch
free t=2 addr=2000 space=blocks
totals t=3 dev=0 allocated=3072 reserved=4096 512:3/1624-1/600 2048:1/2048-0/0
totals t=3 dev=1 allocated=4096 reserved=4096 4096:1/4096-0/0`, `
process 7
total cuda:0 tensor live 3/3072 alloc 4/3672 peak 3072@3
total cuda:1 tensor live 1/4096 alloc 1/4096 peak 4096@3
site 3 cuda:1 tensor live 1/4096 alloc 1/4096 oldest 1 torch
site 2 cuda:0 tensor live 2/2560 alloc 3/3160 oldest 1 torch
site 1 cuda:0 tensor live 1/512 alloc 1/512 oldest 1 torch
tensors 7 cuda:0 live 3/3072 alloc 4/3672 sampled 3 allocated 3072 reserved 4096 peak 3072 at 3 oldercached 1024
tensors 7 cuda:1 live 1/4096 alloc 1/4096 sampled 1 allocated 4096 reserved 4096 peak 4096 at 3`},

	{"a block where one is live takes its place, and a free of an unknown one is no news", `
alloc t=1 addr=1000 size=512 stack=1 dev=0 kind=tensor space=blocks api=torch
alloc t=2 addr=1000 size=640 stack=2 dev=0 kind=tensor space=blocks api=torch
free t=3 addr=2000 space=blocks
freefailed t=4 addr=2000 result=1`, `
process 7
total cuda:0 tensor live 1/640 alloc 2/1152 peak 640@0
site 2 cuda:0 tensor live 1/640 alloc 1/640 oldest 2 torch
site 1 cuda:0 tensor live 0/0 alloc 1/512 oldest 0 torch
tensors 7 cuda:0 live 1/640 alloc 2/1152 sampled 1`},

	{"the free of a block does not take the place of a driver's free that fails", `
alloc t=1 addr=a0 size=100 stack=1 dev=0
alloc t=1 addr=a0 size=512 stack=2 dev=0 kind=tensor space=blocks api=torch
free t=2 addr=a0
free t=3 addr=a0 space=blocks
freefailed t=4 result=1`, `
process 7
total cuda:0 device live 1/100 alloc 1/100 peak 100@1
total cuda:0 tensor live 0/0 alloc 1/512 peak 0@0
site 1 cuda:0 device live 1/100 alloc 1/100 oldest 1
site 2 cuda:0 tensor live 0/0 alloc 1/512 oldest 0 torch
tensors 7 cuda:0 live 0/0 alloc 1/512 sampled 0`},

	{"tensors on the host have no segments", `
devices GPU-a
alloc t=1 addr=1000 size=4096 stack=1 dev=0
alloc t=1 addr=2000 size=512 stack=2 dev=-2 kind=tensor space=blocks api=torch
totals t=3 dev=-2 allocated=7 reserved=9 512:1/512-0/0`, `
process 7
total cpu tensor live 1/512 alloc 1/512 peak 512@3
total cuda:0 device live 1/4096 alloc 1/4096 peak 4096@1
site 1 cuda:0 device live 1/4096 alloc 1/4096 oldest 1
site 2 cpu tensor live 1/512 alloc 1/512 oldest 1 torch
tensors 7 cpu live 1/512 alloc 1/512 sampled 1 peak 512 at 3`},

	{"a tensor shows which GPU the only used ordinal means", `
devices GPU-a GPU-b
usage t=1 GPU-b=300
alloc t=1 addr=1000 size=512 stack=2 dev=0 kind=tensor space=blocks api=torch`, `
process 7
total cuda:0 tensor live 1/512 alloc 1/512 peak 512@0
site 2 cuda:0 tensor live 1/512 alloc 1/512 oldest 1 torch
balance GPU-b cuda:0 usage 300 peak 300 baseline 300 live 0 gap 0
tensors 7 cuda:0 live 1/512 alloc 1/512 sampled 1 foreign 300
part GPU-b of 300: tensors 300 beyond 512`},

	{"a tensor of another device shows that one GPU does not carry all", `
devices GPU-a
alloc t=1 addr=1000 size=4096 stack=1 dev=-1
alloc t=1 addr=1000 size=512 stack=2 dev=1 kind=tensor space=blocks api=torch
usage t=2 GPU-a=4096`, `
process 7
total ? device live 1/4096 alloc 1/4096 peak 4096@1
total cuda:1 tensor live 1/512 alloc 1/512 peak 512@0
site 1 ? device live 1/4096 alloc 1/4096 oldest 1
site 2 cuda:1 tensor live 1/512 alloc 1/512 oldest 1 torch
balance GPU-a cuda:0 usage 4096 peak 4096 baseline 4096 live 0 gap 0
tensors 7 cuda:1 live 1/512 alloc 1/512 sampled 1
part GPU-a of 4096: unplaced 4096 beyond 512`},

	{"the reserved memory of two ordinals of one GPU is not foreign", `
usage t=1 GPU-a=1000
allocator t=2 dev=0 handle=64
allocator t=2 dev=1 handle=c8`, `
process 7
balance GPU-a ? usage 1000 peak 1000 baseline 1000 live 0 gap 0
tensors 7 cuda:0 live 0/0 alloc 0/0 sampled 0 reserved 100 oldercached 100 foreign 900
tensors 7 cuda:1 live 0/0 alloc 0/0 sampled 0 reserved 200 oldercached 200 foreign 800
part GPU-a of 1000: oldercached 300 foreign 700`},

	{"a tensor without a device is on none, whatever GPU the process has", `
devices GPU-a
alloc t=1 addr=1000 size=512 stack=2 dev=-1 kind=tensor space=blocks api=torch
alloc t=1 addr=2000 size=512 stack=2 dev=-3 kind=tensor space=blocks api=torch`, `
process 7
total ? tensor live 2/1024 alloc 2/1024 peak 1024@0
site 2 ? tensor live 2/1024 alloc 2/1024 oldest 1 torch
tensors 7 cuda:-1 live 2/1024 alloc 2/1024 sampled 2`},

	{"tensors count against the limit of live allocations, and no export has their size", `
maxlive 2
alloc t=1 addr=1000 size=512 stack=2 dev=0 kind=tensor space=blocks api=torch
export t=2 addr=1000 space=blocks handle=5
alloc t=3 addr=b0 size=unknown stack=1 kind=imported handle=5
alloc t=4 addr=2000 size=512 stack=2 dev=0 kind=tensor space=blocks api=torch`, `
process 7
total ? imported live 1/0 alloc 1/0 peak 0@0
total cuda:0 tensor live 1/512 alloc 1/512 peak 512@0
site 2 cuda:0 tensor live 1/512 alloc 1/512 oldest 1 torch
site 1 ? imported live 1/0 alloc 1/0 oldest 3
tensors 7 cuda:0 live 1/512 alloc 1/512 sampled 1
stats evicted 1 unknown 1`},

	{"kind and space of tensors come together or not at all", `
alloc t=1 addr=1000 size=512 stack=2 dev=0 kind=tensor
alloc t=1 addr=1000 size=512 stack=2 dev=0 kind=device space=blocks
alloc t=1 addr=1000 size=0 stack=2 dev=0 kind=tensor space=blocks
alloc t=1 addr=1000 size=unknown stack=2 dev=0 kind=tensor space=blocks
alias t=1 addr=1000 space=blocks
free t=2 addr=1000 space=blocks`, `
process 7`},

	{"the end of a context is not the end of tensors", `
ctxretain t=1 dev=0 ctx=c
alloc t=2 addr=1000 size=4096 stack=1 dev=0 ctx=c
alloc t=2 addr=1000 size=512 stack=2 dev=0 ctx=c kind=tensor space=blocks api=torch
ctxreset t=3 dev=0`, `
process 7
total cuda:0 device live 0/0 alloc 1/4096 peak 4096@2
total cuda:0 tensor live 1/512 alloc 1/512 peak 512@0
site 2 cuda:0 tensor live 1/512 alloc 1/512 oldest 2 torch
site 1 cuda:0 device live 0/0 alloc 1/4096 oldest 0
release reset 1/4096@3
tensors 7 cuda:0 live 1/512 alloc 1/512 sampled 1`},

	{"totals that contradict the blocks are a warning, once the process pauses", `
alloc t=1 addr=1000 size=512 stack=2 dev=0 kind=tensor space=blocks api=torch
totals t=2 dev=0 allocated=100 reserved=4096 512:1/512-0/0
totals t=3 dev=0 allocated=612 reserved=4096 512:2/1024-0/0
totals t=4 dev=0 allocated=612 reserved=4096 512:2/1024-0/0
totals t=5 dev=0 allocated=511 reserved=4096 512:2/1024-0/0`, `
process 7
total cuda:0 tensor live 2/1024 alloc 2/1024 peak 1024@3
site 2 cuda:0 tensor live 2/1024 alloc 2/1024 oldest 1 torch
tensors 7 cuda:0 live 2/1024 alloc 2/1024 sampled 1 allocated 511 reserved 4096 peak 612 at 3 oldercached 3072
warning process 7: PyTorch's allocator reports 612 bytes allocated on cuda:0, but tensors of 1024 bytes were allocated since the attach and not freed`},

	{"more than was there and came is a contradiction too", `
allocator t=2 dev=0 size=100 handle=1000
totals t=3 dev=0 allocated=612 reserved=4096 512:1/512-0/0
totals t=4 dev=0 allocated=5000 reserved=4096 512:1/512-0/0`, `
process 7
total cuda:0 tensor live 1/512 alloc 1/512 peak 512@3
site 0 cuda:0 tensor live 1/512 alloc 1/512 oldest 0 torch
tensors 7 cuda:0 live 1/512 alloc 1/512 sampled 0 allocated 5000 reserved 4096 peak 5000 at 4 older 4488
warning process 7: PyTorch's allocator reports 5000 bytes allocated on cuda:0, but tensors of 512 bytes were allocated since the attach and not freed, and 100 bytes before it`},

	{"older tensors are subtracted from the baseline as of one moment", `
devices GPU-a
usage t=1 GPU-a=~10300
allocator t=2 dev=0 size=6000 handle=2710
totals t=3 dev=0 reported=3 allocated=3000 reserved=4000
usage t=4 GPU-a=4300
totals t=5 dev=0 reported=3 allocated=3000 reserved=4000`, `
process 7
balance GPU-a cuda:0 usage 4300 peak 10300 baseline 4300 live 0 gap 0
tensors 7 cuda:0 live 0/0 alloc 0/0 sampled 0 allocated 3000 reserved 4000 peak 6000 at 2 older 3000 oldercached 1000 foreign 300
part GPU-a of 4300: older 3000 oldercached 1000 foreign 300`},

	{"an allocator without totals of its own is not contradicted", `
alloc t=1 addr=1000 size=512 stack=2 dev=0 kind=tensor space=blocks api=torch
totals t=2 dev=0 512:1/512-0/0
totals t=3 dev=0 unbooked=1 512:1/512-0/0
exit t=4
totals t=4 dev=0 unbooked=2 512:1/512-0/0`, `
process 7 ended 4
total cuda:0 tensor live 1/512 alloc 1/512 peak 512@2
site 2 cuda:0 tensor live 1/512 alloc 1/512 oldest 1 torch
tensors 7 cuda:0 live 1/512 alloc 1/512 sampled 1
warning process 7 has more live tensors on cuda:0 than can be followed: the rest is shown as allocated before the attach`},

	{"the first totals stand in for a first report that was lost, and give way to one that is late", `
devices GPU-a GPU-b
usage t=1 GPU-a=1000 GPU-b=1000
totals t=2 dev=0 allocated=0 reserved=600
totals t=2 dev=1 allocated=0 reserved=600
allocator t=2 dev=1 handle=1f4
allocator t=2 dev=1 handle=5
totals t=3 dev=0 allocated=0 reserved=100
totals t=3 dev=1 allocated=0 reserved=100`, `
process 7
balance GPU-a cuda:0 usage 1000 peak 1000 baseline 1000 live 0 gap 0
balance GPU-b cuda:1 usage 1000 peak 1000 baseline 1000 live 0 gap 0
tensors 7 cuda:0 live 0/0 alloc 0/0 sampled 0 reserved 100 oldercached 100 foreign 400
tensors 7 cuda:1 live 0/0 alloc 0/0 sampled 0 reserved 100 oldercached 100 foreign 500
part GPU-a of 1000: oldercached 100 foreign 400 unexplained 500
part GPU-b of 1000: oldercached 100 foreign 500 unexplained 400`},
}

func TestSizeClassesAreFourToADoubling(t *testing.T) {
	for _, x := range []struct {
		size uint64
		want int
	}{
		{0, 0}, {511, 0}, {512, 1}, {639, 1}, {640, 2}, {767, 2}, {768, 3}, {896, 4}, {1023, 4}, {1024, 5}, {1279, 5}, {1280, 6},
		{2048, 9}, {2 << 20, 49}, {1 << 39, 121}, {7 << 38, 127}, {8<<38 - 1, 127}, {8 << 38, 127}, {1 << 48, 127}, {^uint64(0), 127},
	} {
		if got := SizeClass(x.size); got != x.want {
			t.Errorf("%d bytes: class %d, want %d", x.size, got, x.want)
		}
	}
}

// TestNoBlockKeepsItsStackThroughATimeInWhichNoReportWasSeen: its address may have been given out
// again.
func TestNoBlockKeepsItsStackThroughATimeInWhichNoReportWasSeen(t *testing.T) {
	l := New(Options{})
	l.Tell(Process{PID: 7})
	event := func(op Op, time, address, size, stack, allocated, live uint64) {
		e := &Event{Op: op, Kind: Tensor, Space: Blocks, PID: 7, Time: time, Address: address, Size: size, Stack: stack, API: "torch"}
		if op == Allocator {
			e.Size, e.Handle = allocated, 1<<20
		} else {
			e.Told, e.Allocated, e.Reserved, e.Live = ToldAllocated|ToldLive, allocated, 1<<20, live
		}
		l.Apply(e)
	}
	check := func(when string, live, older, allocs, first, second uint64) {
		t.Helper()
		s := l.Snapshot(100, time.Time{})
		got := map[uint64]uint64{}
		for _, x := range s.Sites {
			got[x.Stack] += x.LiveBytes
		}
		x := s.Tensors[0]
		if x.LiveBytes != live || x.Older != older || x.AllocObjects != allocs || got[1] != first || got[2] != second {
			t.Errorf("%s: %+v; live by stack %v; want %d live, %d older, %d allocated, stacks with %d and %d", when, x, got, live, older, allocs, first, second)
		}
	}
	event(Allocator, 1, 0, 0, 0, 0, 0)
	event(Alloc, 2, 0x1000, 512, 1, 512, 512)
	check("before", 512, 0, 1, 512, 0)
	last := TensorTotals{PID: 7, Reported: 2, Allocated: 512, Reserved: 1 << 20, Live: 512, Classes: make([]ClassTotals, SizeClasses)}
	last.Classes[SizeClass(512)] = ClassTotals{Allocs: 1, AllocBytes: 512}
	l.Tell(TensorReading{Time: 4, Totals: []TensorTotals{last}})
	check("read", 512, 0, 1, 512, 0)
	l.Tell(Untraced{From: 5, To: 9})
	check("before the next report", 0, 512, 1, 0, 0)
	event(Allocator, 10, 0, 0, 0, 4096, 0)
	check("after the next report", 0, 4096, 1, 0, 0)
	event(Alloc, 10, 0x1000, 512, 2, 4608, 512)
	check("the address again", 512, 4096, 2, 0, 512)
	event(Free, 11, 0x1000, 0, 0, 4096, 0)
	check("freed", 0, 4096, 2, 0, 0)
}
