// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"math/rand/v2"
	"testing"
	"time"
)

const one = `
process 7
total cuda:0 vmm live 1/100 alloc 1/100 peak 100@1
site 1 cuda:0 vmm live 1/100 alloc 1/100 oldest 1`

const gone = `
process 7
total cuda:0 vmm live 0/0 alloc 1/100 peak 100@1
site 1 cuda:0 vmm live 0/0 alloc 1/100 oldest 0`

const create = "alloc t=1 addr=1 size=100 stack=1 dev=0 kind=vmm space=physical\n"

var physicalRules = []rule{
	{"physical memory lives while it is mapped", create + `
map t=2 addr=1000 size=100 handle=1
free t=3 addr=1 space=physical`, one},

	{"physical memory lives while it has a handle", create + `
map t=2 addr=1000 size=100 handle=1
unmap t=3 addr=1000 size=100`, one},

	{"physical memory ends with its handle and its mappings", create + `
map t=2 addr=1000 size=100 handle=1
free t=3 addr=1 space=physical
unmap t=4 addr=1000 size=100`, gone},

	{"physical memory that was never mapped ends with its handle", create + `
free t=3 addr=1 space=physical`, gone},

	{"NCCL retains, releases, unmaps and releases", create + `
map t=2 addr=1000 size=100 handle=1
retain t=3 addr=1010 handle=1
free t=4 addr=1 space=physical
unmap t=5 addr=1000 size=100
free t=6 addr=1 space=physical`, gone},

	{"until the last release of NCCL the memory lives", create + `
map t=2 addr=1000 size=100 handle=1
retain t=3 addr=1010 handle=1
free t=4 addr=1 space=physical
unmap t=5 addr=1000 size=100`, one},

	{"a handle may have two numbers", create + `
map t=2 addr=1000 size=100 handle=1
retain t=3 addr=1063 handle=2
free t=4 addr=1 space=physical
map t=5 addr=2000 size=100 handle=2
unmap t=6 addr=1000 size=100
unmap t=6 addr=2000 size=100`, one},

	{"a released number names the next memory, while the first lives on", create + `
map t=2 addr=1000 size=100 handle=1
free t=3 addr=1 space=physical
alloc t=4 addr=1 size=10 stack=1 dev=0 kind=vmm space=physical
free t=5 addr=1 space=physical`, `
process 7
total cuda:0 vmm live 1/100 alloc 2/110 peak 110@4
site 1 cuda:0 vmm live 1/100 alloc 2/110 oldest 1`},

	{"a number handed out again although it was not released names the next memory", create + `
alloc t=4 addr=1 size=10 stack=1 dev=0 kind=vmm space=physical`, `
process 7
total cuda:0 vmm live 1/10 alloc 2/110 peak 100@1
site 1 cuda:0 vmm live 1/10 alloc 2/110 oldest 4
stats reused 1`},

	{"one unmap ends all mappings inside its range, and none that reaches out of it", create + `
map t=2 addr=1000 size=16 handle=1
map t=2 addr=1010 size=16 handle=1
map t=2 addr=1020 size=16 handle=1
free t=3 addr=1 space=physical
unmap t=4 addr=1000 size=47`, one},

	{"one unmap ends the memory of several mappings", create + `
map t=2 addr=1000 size=16 handle=1
map t=2 addr=1010 size=16 handle=1
map t=2 addr=1020 size=16 handle=1
free t=3 addr=1 space=physical
unmap t=4 addr=f00 size=4096`, gone},

	{"unknown memory is unmatched when it is released or unmapped, and ignored when it is mapped or retained", `
map t=1 addr=1000 size=100 handle=1
retain t=1 addr=1000 handle=2
free t=2 addr=1 space=physical
free t=2 addr=2 space=physical
unmap t=3 addr=1000 size=100`, `
process 7
stats unmatched 3`},

	{"a failed release gives the reference back", create + `
map t=2 addr=1000 size=100 handle=1
free t=3 addr=1 space=physical
freefailed t=4 addr=1 result=1
unmap t=5 addr=1000 size=100`, one},

	{"a failed release brings memory back that ended with it, once", create + `
free t=3 addr=1 space=physical
freefailed t=4 addr=1 result=1
freefailed t=4 addr=1 result=1
free t=5 addr=1 space=physical`, gone},

	{"a failed unmap brings all back that ended with it", `
alloc t=1 addr=1 size=60 stack=1 dev=0 kind=vmm space=physical
alloc t=1 addr=2 size=40 stack=1 dev=0 kind=vmm space=physical
map t=2 addr=1000 size=16 handle=1
map t=2 addr=1010 size=16 handle=2
free t=3 addr=1 space=physical
free t=3 addr=2 space=physical
unmap t=4 addr=1000 size=32
freefailed t=5 addr=1000 result=1
retain t=6 addr=1000 handle=1
unmap t=7 addr=1000 size=32`, `
process 7
total cuda:0 vmm live 1/60 alloc 2/100 peak 100@1
site 1 cuda:0 vmm live 1/60 alloc 2/100 oldest 1`},

	{"failed calls of two threads are undone in any order", create + `
map t=2 addr=1000 size=100 handle=1
free t=3 addr=1 tid=8 space=physical
unmap t=4 addr=1000 size=100 tid=9
freefailed t=5 tid=8 result=1
freefailed t=6 tid=9 result=1
free t=7 addr=1 space=physical`, one},

	{"a release that failed although its number was handed out again stays", create + `
free t=2 addr=1 tid=8 space=physical
alloc t=3 addr=1 size=10 stack=1 dev=0 kind=vmm space=physical
freefailed t=4 tid=8 result=1
free t=5 addr=1 space=physical`, `
process 7
total cuda:0 vmm live 0/0 alloc 2/110 peak 100@1
site 1 cuda:0 vmm live 0/0 alloc 2/110 oldest 0`},

	{"nor does it come back in place of an alias", create + `
free t=2 addr=1 tid=8 space=physical
alloc t=3 addr=1 size=0 space=physical
freefailed t=4 tid=8 result=1
free t=5 addr=1 space=physical
free t=5 addr=1 space=physical`, gone + `
stats unmatched 1`},

	{"mappings and handles have the limit of allocations", `
maxlive 3
` + create + `
map t=2 addr=1000 size=16 handle=1
map t=2 addr=1010 size=16 handle=1
map t=2 addr=1020 size=16 handle=1
retain t=2 addr=1000 handle=2
unmap t=3 addr=1010 size=32`, one + `
stats evicted 2`},

	{"an unmap that failed although its addresses were mapped again stays", create + `
map t=2 addr=1000 size=100 handle=1
unmap t=3 addr=1000 size=100 tid=8
map t=4 addr=1010 size=100 handle=1
freefailed t=5 tid=8 result=1
unmap t=6 addr=1010 size=100
free t=7 addr=1 space=physical`, gone},

	{"a failed release of the unknown was no free", `
free t=1 addr=1 space=physical
freefailed t=2 result=1
unmap t=1 addr=1000 size=16
freefailed t=2 result=1`, `
process 7`},

	{"own memory imported again has one reference more", create + `
alloc t=2 addr=1 size=unknown stack=1 kind=imported space=physical
free t=3 addr=1 space=physical`, one},

	{"imported memory learns its size from its largest mapping", `
alloc t=1 addr=1 size=unknown stack=1 dev=0 kind=imported space=physical
map t=2 addr=1000 size=10 handle=1
map t=3 addr=2000 size=30 handle=1
map t=4 addr=3000 size=20 handle=1`, `
process 7
total cuda:0 imported live 1/30 alloc 1/30 peak 30@3
site 1 cuda:0 imported live 1/30 alloc 1/30 oldest 1`},

	{"memory of a known size keeps it", create + `
map t=2 addr=1000 size=200 handle=1`, one},

	{"a multicast object is mapped, retained and released without a trace", `
alloc t=1 addr=5 size=0 space=physical
map t=2 addr=1000 size=100 handle=5
retain t=3 addr=1000 handle=5
free t=4 addr=5 space=physical
unmap t=5 addr=1000 size=100
free t=6 addr=5 space=physical`, `
process 7`},

	{"a mapping over another one replaces it", create + `
alloc t=1 addr=2 size=10 stack=1 dev=1 kind=vmm space=physical
map t=2 addr=1000 size=100 handle=1
free t=3 addr=1 space=physical
map t=4 addr=1010 size=10 handle=2`, `
process 7
total cuda:0 vmm live 0/0 alloc 1/100 peak 100@1
total cuda:1 vmm live 1/10 alloc 1/10 peak 10@1
site 1 cuda:1 vmm live 1/10 alloc 1/10 oldest 1
site 1 cuda:0 vmm live 0/0 alloc 1/100 oldest 0
stats reused 1`},

	{"mappings end with their process", create + `
map t=2 addr=1000 size=100 handle=1
exit t=3
unmap t=60 addr=1000 size=100
free t=60 addr=1 space=physical`, `
process 7 ended 3
total cuda:0 vmm live 1/100 alloc 1/100 peak 100@1
site 1 cuda:0 vmm live 1/100 alloc 1/100 oldest 1
process 7
stats unmatched 2`},
}

func BenchmarkMapUnmap(b *testing.B) {
	const page, n = 2 << 20, 40_000
	l := New(Options{})
	for i := range uint64(n) {
		l.Apply(&Event{Op: Alloc, Kind: VMM, Space: Physical, PID: 7, TID: 7, Time: 1, Address: 1 + i, Size: page})
		l.Apply(&Event{Op: Map, PID: 7, TID: 7, Time: 1, Address: page * (1 + i), Size: page, Handle: 1 + i})
	}
	rng := rand.New(rand.NewPCG(1, 2))
	b.ReportAllocs()
	for b.Loop() {
		i := rng.Uint64N(n)
		e := Event{Op: Unmap, PID: 7, TID: 7, Time: 2, Address: page * (1 + i), Size: page}
		l.Apply(&e)
		e.Op, e.Handle = Map, 1+i
		l.Apply(&e)
	}
	if s := l.Snapshot(3, time.Time{}); s.Stats.UnmatchedFrees != 0 || s.Processes[0].Totals[0].LiveObjects != n {
		b.Errorf("%+v %+v", s.Stats, s.Processes[0].Totals)
	}
}
