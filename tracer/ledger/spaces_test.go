// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger/quota"
)

// spaceRules: spaces of addresses, unknown sizes, aliases, and imported memory.
var spaceRules = []rule{
	{"the same number in two spaces is two allocations", `
alloc t=1 addr=a0 size=100 stack=1 kind=pinned
alloc t=2 addr=a0 size=50 stack=1 kind=registered space=registers
alloc t=3 addr=a0 size=7 stack=1 kind=array space=arrays
free t=4 addr=a0 space=registers
free t=5 addr=a0 space=mipmaps`, `
process 7
total ? pinned live 1/100 alloc 1/100 peak 100@1
total ? registered live 0/0 alloc 1/50 peak 50@2
total ? array live 1/7 alloc 1/7 peak 7@3
site 1 ? pinned live 1/100 alloc 1/100 oldest 1
site 1 ? array live 1/7 alloc 1/7 oldest 3
site 1 ? registered live 0/0 alloc 1/50 oldest 0
stats unmatched 1`},

	{"host memory has no device, imported memory is not the process's own", `
devices GPU-a
alloc t=1 addr=a0 size=100 stack=1 kind=registered space=registers
alloc t=1 addr=b0 size=10 stack=1 kind=imported
alloc t=1 addr=c0 size=1 stack=1
usage t=2 GPU-a=301`, `
process 7
total ? registered live 1/100 alloc 1/100 peak 100@1
total cuda:0 device live 1/1 alloc 1/1 peak 1@1
total cuda:0 imported live 1/10 alloc 1/10 peak 10@1
site 1 ? registered live 1/100 alloc 1/100 oldest 1
site 1 cuda:0 imported live 1/10 alloc 1/10 oldest 1
site 1 cuda:0 device live 1/1 alloc 1/1 oldest 1
balance GPU-a cuda:0 usage 301 peak 301 baseline 300 live 1 gap 0`},

	{"an unknown size is an object without bytes, counted while it lives", `
alloc t=1 addr=a0 size=unknown stack=1
alloc t=1 addr=b0 size=unknown stack=1
free t=2 addr=a0
free t=3 addr=b0 tid=9
freefailed t=4 tid=9 result=1`, `
process 7
total ? device live 1/0 alloc 2/0 peak 0@0
site 1 ? device live 1/0 alloc 2/0 oldest 1
stats unknown 1`},

	{"a size that no address space has room for is unknown", `
alloc t=1 addr=a0 size=281474976710657 stack=1
alloc t=2 addr=b0 size=-2 stack=1`, `
process 7
total ? device live 2/0 alloc 2/0 peak 0@0
site 1 ? device live 2/0 alloc 2/0 oldest 1
stats unknown 2`},

	{"an alias is neither booked nor missed", `
alias t=1 addr=a0
alias t=1 addr=a0 space=externals
alloc t=1 addr=c0 size=0 stack=1 kind=array space=arrays
free t=2 addr=a0
free t=2 addr=c0 space=arrays
free t=3 addr=a0
free t=3 addr=c0 space=arrays
free t=4 addr=a0 space=externals`, `
process 7
stats unmatched 2`},

	{"a failed free brings an alias back", `
alias t=1 addr=a0
free t=2 addr=a0
freefailed t=3 result=1
free t=4 addr=a0`, `
process 7`},

	{"an allocation where an alias was is an allocation", `
alias t=1 addr=a0
alloc t=2 addr=a0 size=5 stack=1
alias t=3 addr=a0
free t=4 addr=a0`, `
process 7
total ? device live 0/0 alloc 1/5 peak 5@2
site 1 ? device live 0/0 alloc 1/5 oldest 0
stats reused 1`},

	{"memory that is imported twice is freed twice", `
alloc t=1 addr=a0 size=100 stack=1 kind=imported
alloc t=2 addr=a0 size=100 stack=2 kind=imported
free t=3 addr=a0
alloc t=4 addr=b0 size=10 stack=1 kind=imported
alloc t=4 addr=b0 size=10 stack=1 kind=imported
free t=5 addr=b0
free t=5 addr=b0
free t=6 addr=b0`, `
process 7
total ? imported live 1/100 alloc 2/110 peak 110@4
site 1 ? imported live 1/100 alloc 2/110 oldest 1
stats unmatched 1`},

	{"a failed free gives an import its reference back", `
alloc t=1 addr=a0 size=100 stack=1 kind=imported
alloc t=1 addr=a0 size=100 stack=1 kind=imported
free t=2 addr=a0 tid=8
freefailed t=3 tid=8 result=1
free t=4 addr=a0 tid=8
free t=5 addr=a0 tid=9
freefailed t=6 tid=8 result=1
freefailed t=6 tid=9 result=1
free t=7 addr=a0`, `
process 7
total ? imported live 1/100 alloc 1/100 peak 100@1
site 1 ? imported live 1/100 alloc 1/100 oldest 1`},

	{"references given back to an import can be freed again", `
alloc t=1 addr=a0 size=100 stack=1 kind=imported
alloc t=1 addr=a0 size=100 stack=1 kind=imported
free t=2 addr=a0 tid=8
free t=2 addr=a0 tid=9
freefailed t=3 tid=8 result=1
freefailed t=3 tid=9 result=1
free t=4 addr=a0
free t=5 addr=a0
free t=6 addr=a0`, `
process 7
total ? imported live 0/0 alloc 1/100 peak 100@1
site 1 ? imported live 0/0 alloc 1/100 oldest 0
stats unmatched 1`},

	{"an import in place of another allocation replaces it", `
alloc t=1 addr=a0 size=100 stack=1
alloc t=2 addr=a0 size=10 stack=1 kind=imported`, `
process 7
total ? device live 0/0 alloc 1/100 peak 100@1
total ? imported live 1/10 alloc 1/10 peak 10@2
site 1 ? imported live 1/10 alloc 1/10 oldest 2
site 1 ? device live 0/0 alloc 1/100 oldest 0
stats reused 1`},

	{"an import has the size of the exported memory", `
alloc t=1 addr=a0 size=100 stack=1 pid=6
export t=1 addr=a0 handle=d1 pid=6
export t=1 addr=a1 handle=d2 pid=6
alloc t=2 addr=b0 size=unknown stack=1 kind=imported handle=d1
alloc t=2 addr=c0 size=unknown stack=1 kind=imported handle=d2
alloc t=2 addr=d0 size=7 stack=1 kind=imported handle=d1
alloc t=2 addr=e0 size=unknown stack=1 kind=device handle=d1`, `
process 6
total ? device live 1/100 alloc 1/100 peak 100@1
site 1 ? device live 1/100 alloc 1/100 oldest 1
process 7
total ? device live 1/0 alloc 1/0 peak 0@0
total ? imported live 3/107 alloc 3/107 peak 107@2
site 1 ? imported live 3/107 alloc 3/107 oldest 2
site 1 ? device live 1/0 alloc 1/0 oldest 2
stats unknown 2`},

	{"an export is forgotten a while after its process ended", `
alloc t=1 addr=a0 size=100 stack=1 pid=6
export t=1 addr=a0 handle=d1 pid=6
exit t=2 pid=6
alloc t=3 addr=b0 size=unknown stack=1 kind=imported handle=d1
alloc t=60 addr=c0 size=unknown stack=2 kind=imported handle=d1`, `
process 6 ended 2
total ? device live 1/100 alloc 1/100 peak 100@1
site 1 ? device live 1/100 alloc 1/100 oldest 1
process 7
total ? imported live 2/100 alloc 2/100 peak 100@3
site 1 ? imported live 1/100 alloc 1/100 oldest 3
site 2 ? imported live 1/0 alloc 1/0 oldest 60
stats unknown 1`},

	{"NVML goes before the environment for one ordinal", `
devices GPU-a GPU-b
alloc t=1 addr=a0 size=100 stack=1 dev=0
alloc t=1 addr=b0 size=10 stack=2
usage t=2 GPU-b=500`, `
process 7
total cuda:0 device live 2/110 alloc 2/110 peak 110@1
site 1 cuda:0 device live 1/100 alloc 1/100 oldest 1
site 2 cuda:0 device live 1/10 alloc 1/10 oldest 1
balance GPU-b cuda:0 usage 500 peak 500 baseline 390 live 110 gap 0`},
}

func TestASnapshotShowsTheDevicesThatNVMLConfirms(t *testing.T) {
	for _, c := range []struct {
		script string
		want   []string
	}{
		{"devices GPU-a GPU-b\nalloc t=1 addr=a0 size=1 dev=0\nusage t=2 GPU-b=5", []string{"GPU-b", ""}},
		{"devices GPU-a\nalloc t=1 addr=a0 size=1 dev=0\nusage t=2 GPU-b=5", []string{"GPU-b"}},
		{"devices GPU-a GPU-b\nalloc t=1 addr=a0 size=1 dev=0\nalloc t=1 addr=b0 size=1 dev=1\nusage t=2 GPU-b=5", []string{"GPU-a", "GPU-b"}},
		{"devices GPU-a GPU-b\nalloc t=1 addr=a0 size=1 dev=0\nusage t=2 GPU-a=5 GPU-b=5", []string{"GPU-a", "GPU-b"}},
		{"devices GPU-a GPU-b\nalloc t=1 addr=a0 size=1 dev=0 kind=pinned\nusage t=2 GPU-b=5", []string{"GPU-a", "GPU-b"}},
	} {
		if got := play(t, c.script).Snapshot(9e9, time.Time{}).Processes[0].Devices; !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.script, got, c.want)
		}
	}
}

func TestExportsAreBoundedAndTheLatestStay(t *testing.T) {
	l := New(Options{})
	l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, Address: 1, Size: 64})
	const n = 2 * maxExports
	for i := range uint64(n) {
		l.Apply(&Event{Op: Export, PID: 7, Address: 1, Handle: 1 + i})
	}
	if have := len(l.exports); have > maxExports/quota.ProcessPart {
		t.Errorf("%d exports are kept, want at most %d", have, maxExports/quota.ProcessPart)
	}
	for _, digest := range []uint64{n, n - maxExports/quota.ProcessPart/2 + 1} {
		if got := l.sizeOf(&Event{Kind: Imported, Handle: digest}); got != 64 {
			t.Errorf("export %d has %d bytes, want 64", digest, got)
		}
	}
}
