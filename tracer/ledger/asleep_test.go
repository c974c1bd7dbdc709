// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"strings"
	"testing"
	"time"
)

// awake: 1000 of context, a segment of 4096 with tensors of 1536 and 1024, one of 8192 with a
// tensor of 6144, all of physical memory. slept: the large one is unmapped and released.
const awake = `
devices GPU-a
usage t=1 GPU-a=1000
alloc t=2 addr=1 size=4096 stack=1 dev=0 kind=vmm space=physical api=cuMemCreate
map t=2 addr=100000 size=4096 handle=1
alloc t=2 addr=2 size=8192 stack=1 dev=0 kind=vmm space=physical api=cuMemCreate
map t=2 addr=200000 size=8192 handle=2
allocator t=3 dev=0 handle=3000
alloc t=3 addr=100000 size=1536 stack=2 dev=0 kind=tensor space=blocks api=torch
alloc t=3 addr=100800 size=1024 stack=3 dev=0 kind=tensor space=blocks api=torch
alloc t=3 addr=200000 size=6144 stack=3 dev=0 kind=tensor space=blocks api=torch
segments 1
totals t=4 dev=0 reported=3 allocated=8704 reserved=12288 1536:1/1536-0/0 1024:1/1024-0/0 6144:1/6144-0/0
blocks 100000+1536 100800+1024 200000+6144
usage t=4 GPU-a=13288`

const slept = awake + `
unmap t=5 addr=200000 size=8192
free t=5 addr=2 space=physical
usage t=6 GPU-a=5096`

const sleepers = `
process 7
total cuda:0 vmm live 1/4096 alloc 2/12288 peak 12288@2
total cuda:0 tensor live 3/8704 alloc 3/8704 peak 8704@4
site 3 cuda:0 tensor live 2/7168 alloc 2/7168 oldest 3 torch asleep 6144
site 1 cuda:0 vmm live 1/4096 alloc 2/12288 oldest 2 cuMemCreate segment with 2560
site 2 cuda:0 tensor live 1/1536 alloc 1/1536 oldest 3 torch
balance GPU-a cuda:0 usage 5096 peak 13288 baseline 1000 live 4096 gap 0
tensors 7 cuda:0 live 3/8704 alloc 3/8704 sampled 3 allocated 8704 reserved 12288 peak 8704 at 4 segments 4096 cached 1536 run 1024 asleep 6144 foreign 1000
part GPU-a of 5096: tensors 2560 cached 1536 foreign 1000`

// asleepRules: tensors whose physical memory was unmapped under them.
var asleepRules = []rule{
	{"tensors whose memory is unmapped are asleep, and in no part", slept + `
blocks 100000+1536 100800+1024 200000+6144`, sleepers},

	{"so are they when the allocator has reported since, which counts the segment still", slept + `
totals t=7 dev=0 reported=6 allocated=8704 reserved=12288 1536:1/1536-0/0 1024:1/1024-0/0 6144:1/6144-0/0
blocks 100000+1536 100800+1024 200000+6144`, sleepers},

	{"before a list of blocks, the tensors that do not fit the segments are asleep", slept, `
process 7
total cuda:0 vmm live 1/4096 alloc 2/12288 peak 12288@2
total cuda:0 tensor live 3/8704 alloc 3/8704 peak 8704@4
site 3 cuda:0 tensor live 2/7168 alloc 2/7168 oldest 3 torch
site 1 cuda:0 vmm live 1/4096 alloc 2/12288 oldest 2 cuMemCreate segment with 4096
site 2 cuda:0 tensor live 1/1536 alloc 1/1536 oldest 3 torch
balance GPU-a cuda:0 usage 5096 peak 13288 baseline 1000 live 4096 gap 0
tensors 7 cuda:0 live 3/8704 alloc 3/8704 sampled 3 allocated 8704 reserved 4096 peak 8704 at 4 segments 4096 run 2048 asleep 4608 foreign 1000
part GPU-a of 5096: tensors 4096 foreign 1000`},

	{"they wake when memory is mapped there again", slept + `
blocks 100000+1536 100800+1024 200000+6144
totals t=7 dev=0 reported=6 allocated=8704 reserved=12288 1536:1/1536-0/0 1024:1/1024-0/0 6144:1/6144-0/0
alloc t=8 addr=3 size=8192 stack=5 dev=0 kind=vmm space=physical api=cuMemCreate
map t=8 addr=200000 size=8192 handle=3
blocks 100000+1536 100800+1024 200000+6144
usage t=9 GPU-a=13288`, `
process 7
total cuda:0 vmm live 2/12288 alloc 3/20480 peak 12288@2
total cuda:0 tensor live 3/8704 alloc 3/8704 peak 8704@4
site 5 cuda:0 vmm live 1/8192 alloc 1/8192 oldest 8 cuMemCreate segment with 6144
site 3 cuda:0 tensor live 2/7168 alloc 2/7168 oldest 3 torch
site 1 cuda:0 vmm live 1/4096 alloc 2/12288 oldest 2 cuMemCreate segment with 2560
site 2 cuda:0 tensor live 1/1536 alloc 1/1536 oldest 3 torch
balance GPU-a cuda:0 usage 13288 peak 13288 baseline 1000 live 12288 gap 0
tensors 7 cuda:0 live 3/8704 alloc 3/8704 sampled 3 allocated 8704 reserved 12288 peak 8704 at 4 segments 12288 cached 3584 run 2048 foreign 1000
part GPU-a of 13288: tensors 8704 cached 3584 foreign 1000`},

	{"an unmapping that failed leaves them awake", awake + `
unmap t=5 addr=200000 size=8192
freefailed t=6 addr=200000 result=1
blocks 100000+1536 100800+1024 200000+6144`, `
process 7
total cuda:0 vmm live 2/12288 alloc 2/12288 peak 12288@2
total cuda:0 tensor live 3/8704 alloc 3/8704 peak 8704@4
site 1 cuda:0 vmm live 2/12288 alloc 2/12288 oldest 2 cuMemCreate segment with 8704
site 3 cuda:0 tensor live 2/7168 alloc 2/7168 oldest 3 torch
site 2 cuda:0 tensor live 1/1536 alloc 1/1536 oldest 3 torch
balance GPU-a cuda:0 usage 13288 peak 13288 baseline 1000 live 12288 gap 0
tensors 7 cuda:0 live 3/8704 alloc 3/8704 sampled 3 allocated 8704 reserved 12288 peak 8704 at 4 segments 12288 cached 3584 run 2048 foreign 1000
part GPU-a of 13288: tensors 8704 cached 3584 foreign 1000`},

	{"cache that sleeps is no cache from before the attach", slept + `
free t=7 addr=200000 space=blocks
totals t=7 dev=0 reported=7 allocated=2560 reserved=12288 1536:1/1536-0/0 1024:1/1024-0/0 6144:1/6144-1/6144
blocks 100000+1536 100800+1024`, `
process 7
total cuda:0 vmm live 1/4096 alloc 2/12288 peak 12288@2
total cuda:0 tensor live 2/2560 alloc 3/8704 peak 8704@4
site 1 cuda:0 vmm live 1/4096 alloc 2/12288 oldest 2 cuMemCreate segment with 2560
site 2 cuda:0 tensor live 1/1536 alloc 1/1536 oldest 3 torch
site 3 cuda:0 tensor live 1/1024 alloc 2/7168 oldest 3 torch
balance GPU-a cuda:0 usage 5096 peak 13288 baseline 1000 live 4096 gap 0
tensors 7 cuda:0 live 2/2560 alloc 3/8704 sampled 2 allocated 2560 reserved 12288 peak 8704 at 4 segments 4096 cached 1536 run 1024 foreign 1000
part GPU-a of 5096: tensors 2560 cached 1536 foreign 1000`},

	{"memory that was mapped before the attach sleeps, too", `
devices GPU-a
usage t=1 GPU-a=13288
allocator t=3 dev=0 size=8704 handle=3000
totals t=4 dev=0 reported=3 allocated=8704 reserved=12288
unmap t=5 addr=200000 size=8192 dev=0
usage t=6 GPU-a=5096
totals t=7 dev=0 reported=6 allocated=8704 reserved=12288`, `
process 7
balance GPU-a cuda:0 usage 5096 peak 13288 baseline 13288 live 0 gap -8192
tensors 7 cuda:0 live 0/0 alloc 0/0 sampled 0 allocated 8704 reserved 12288 peak 8704 at 3 older 8704 olderasleep 4608 foreign 1000
part GPU-a of 5096: older 4096 foreign 1000
stats unmatched 1`},

	{"also before the allocator's first report", `
devices GPU-a
usage t=1 GPU-a=13288
unmap t=2 addr=200000 size=8192 dev=0
usage t=3 GPU-a=5096
allocator t=4 dev=0 size=8704 handle=3000
totals t=5 dev=0 reported=4 allocated=8704 reserved=12288`, `
process 7
balance GPU-a cuda:0 usage 5096 peak 13288 baseline 13288 live 0 gap -8192
tensors 7 cuda:0 live 0/0 alloc 0/0 sampled 0 allocated 8704 reserved 12288 peak 8704 at 4 older 8704 olderasleep 4608 foreign 1000
part GPU-a of 5096: older 4096 foreign 1000
stats unmatched 1`},

	{"and is driver memory when it wakes, since its tensors are unknown", `
devices GPU-a
usage t=1 GPU-a=13288
allocator t=3 dev=0 size=8704 handle=3000
totals t=4 dev=0 reported=3 allocated=8704 reserved=12288
unmap t=5 addr=200000 size=8192 dev=0
alloc t=6 addr=3 size=8192 stack=5 dev=0 kind=vmm space=physical api=cuMemCreate
map t=6 addr=200000 size=8192 handle=3
usage t=7 GPU-a=13288
totals t=7 dev=0 reported=6 allocated=8704 reserved=12288`, `
process 7
total cuda:0 vmm live 1/8192 alloc 1/8192 peak 8192@6
site 5 cuda:0 vmm live 1/8192 alloc 1/8192 oldest 6 cuMemCreate
balance GPU-a cuda:0 usage 13288 peak 13288 baseline 13288 live 8192 gap -8192
tensors 7 cuda:0 live 0/0 alloc 0/0 sampled 0 allocated 8704 reserved 12288 peak 8704 at 3 older 8704 oldermoved 4608 foreign 1000
part GPU-a of 13288: driver 8192 older 4096 foreign 1000
stats unmatched 1`},

	{"addresses that are given back had nothing asleep", `
devices GPU-a
usage t=1 GPU-a=13288
allocator t=3 dev=0 size=8704 handle=3000
totals t=4 dev=0 reported=3 allocated=8704 reserved=12288
unmap t=5 addr=200000 size=300 dev=0
addressfree t=5 addr=200000 size=4096
usage t=6 GPU-a=12988`, `
process 7
balance GPU-a cuda:0 usage 12988 peak 13288 baseline 13288 live 0 gap -300
tensors 7 cuda:0 live 0/0 alloc 0/0 sampled 0 allocated 8704 reserved 12288 peak 8704 at 3 older 8704 oldercached 3584 foreign 1000
part GPU-a of 12988: older 8704 oldercached 3584 foreign 700 beyond 300
stats unmatched 1`},

	{"PyTorch's own unmapping puts nothing to sleep", awake + `
free t=5 addr=200000 space=blocks
unmap t=5 addr=200000 size=8192
free t=5 addr=2 space=physical
totals t=6 dev=0 reported=5 allocated=2560 reserved=4096 1536:1/1536-0/0 1024:1/1024-0/0 6144:1/6144-1/6144
usage t=6 GPU-a=5096
blocks 100000+1536 100800+1024`, `
process 7
total cuda:0 vmm live 1/4096 alloc 2/12288 peak 12288@2
total cuda:0 tensor live 2/2560 alloc 3/8704 peak 8704@4
site 1 cuda:0 vmm live 1/4096 alloc 2/12288 oldest 2 cuMemCreate segment with 2560
site 2 cuda:0 tensor live 1/1536 alloc 1/1536 oldest 3 torch
site 3 cuda:0 tensor live 1/1024 alloc 2/7168 oldest 3 torch
balance GPU-a cuda:0 usage 5096 peak 13288 baseline 1000 live 4096 gap 0
tensors 7 cuda:0 live 2/2560 alloc 3/8704 sampled 2 allocated 2560 reserved 4096 peak 8704 at 4 segments 4096 cached 1536 run 1024 foreign 1000
part GPU-a of 5096: tensors 2560 cached 1536 foreign 1000`},
}

// checkAsleep tests what must hold of tensors without memory, whatever was applied.
func checkAsleep(t *testing.T, l *Ledger, s *Snapshot) {
	t.Helper()
	for i := range s.Tensors {
		x := &s.Tensors[i]
		var sites uint64
		for k := range s.Sites {
			if y := &s.Sites[k]; y.Kind == Tensor && y.Process == x.Process && y.Device == x.Device {
				sites += y.Asleep
				if y.Asleep > y.LiveBytes {
					t.Errorf("a site has %d of %d bytes asleep", y.Asleep, y.LiveBytes)
				}
			}
		}
		if sites > x.Asleep || x.Asleep > x.LiveBytes || x.OlderAsleep+x.OlderMoved > x.Older {
			t.Errorf("%+v: sites have %d bytes asleep", x, sites)
		}
	}
	for _, p := range l.procs {
		var end uint64
		for _, x := range p.asleep.ranges {
			if p.purged {
				continue // it only keeps sums
			}
			if x.start >= x.end || x.start < end || x.inside > x.end-x.start && !x.older && x.placed {
				t.Errorf("range %+v after one that ends at %x", x, end)
			}
			if end = x.end; p.physical != nil && p.physical.mappings.Overlaps(x.start, x.end) {
				t.Errorf("range %+v has memory", x)
			}
		}
	}
}

func TestRangesThatSleepAreBounded(t *testing.T) {
	l := New(Options{})
	l.Tell(TensorReading{Time: 1, Totals: []TensorTotals{{PID: 7, Allocated: 1, Reserved: 1}}})
	l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, Time: 1, Address: 1, Size: 1})
	l.Tell(TensorReading{Time: 1, Totals: []TensorTotals{{PID: 7, Allocated: 1, Reserved: 1}}})
	for i := range uint64(maxSleepers + 10) {
		l.Apply(&Event{Op: Unmap, PID: 7, Time: 2, Address: (i + 1) << 32, Size: 1 << 21})
	}
	if n := len(l.procs[0].asleep.ranges); n != maxSleepers {
		t.Errorf("%d ranges are remembered, want %d", n, maxSleepers)
	}
	if s := l.Snapshot(3, time.Time{}); len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "too many ranges of unmapped memory") {
		t.Errorf("warnings %q", s.Warnings)
	}
}
