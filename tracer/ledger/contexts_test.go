// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"testing"
	"time"
)

// allocations in context c0 of device 0, and in other contexts
const inContext = `
alloc t=2 addr=a0 size=1 stack=1 dev=0 ctx=c0
alloc t=2 addr=a1 size=2 stack=1 dev=0 ctx=c0 kind=managed
alloc t=2 addr=a2 size=4 stack=1 dev=0 ctx=c0 kind=pinned
alloc t=2 addr=a3 size=8 stack=1 dev=0 ctx=c0 kind=registered space=registers
alloc t=2 addr=a4 size=16 stack=1 dev=0 ctx=c0 kind=array space=arrays
alloc t=2 addr=a5 size=32 stack=1 dev=0 ctx=c0 kind=imported
alloc t=2 addr=a6 size=64 stack=1 dev=0 ctx=c0 kind=graph
alias t=2 addr=a7 ctx=c0
alloc t=2 addr=1 size=128 stack=2 dev=0 ctx=c0 kind=vmm space=physical
alloc t=2 addr=2 size=256 stack=2 dev=0 ctx=c0 kind=imported space=physical
alloc t=2 addr=b0 size=512 stack=3 dev=0 ctx=c1
alloc t=2 addr=b1 size=1024 stack=3 dev=1
`

const outOfContext = `
process 7
total cuda:0 device live 1/512 alloc 2/513 peak 513@2
total cuda:0 managed live 0/0 alloc 1/2 peak 2@2
total cuda:0 pinned live 0/0 alloc 1/4 peak 4@2
total cuda:0 registered live 0/0 alloc 1/8 peak 8@2
total cuda:0 vmm live 1/128 alloc 1/128 peak 128@2
total cuda:0 array live 0/0 alloc 1/16 peak 16@2
total cuda:0 imported live 1/256 alloc 2/288 peak 288@2
total cuda:0 graph live 0/0 alloc 1/64 peak 64@2
total cuda:1 device live 1/1024 alloc 1/1024 peak 1024@2
site 3 cuda:1 device live 1/1024 alloc 1/1024 oldest 2
site 3 cuda:0 device live 1/512 alloc 1/512 oldest 2
site 2 cuda:0 imported live 1/256 alloc 1/256 oldest 2
site 2 cuda:0 vmm live 1/128 alloc 1/128 oldest 2
site 1 cuda:0 device live 0/0 alloc 1/1 oldest 0
site 1 cuda:0 managed live 0/0 alloc 1/2 oldest 0
site 1 cuda:0 pinned live 0/0 alloc 1/4 oldest 0
site 1 cuda:0 registered live 0/0 alloc 1/8 oldest 0
site 1 cuda:0 array live 0/0 alloc 1/16 oldest 0
site 1 cuda:0 imported live 0/0 alloc 1/32 oldest 0
site 1 cuda:0 graph live 0/0 alloc 1/64 oldest 0
`

// one allocation of context c0 on device 0
const inOne = "alloc t=2 addr=a0 size=1 stack=1 dev=0 ctx=c0\n"

const oneLive = `
process 7
total cuda:0 device live 1/1 alloc 1/1 peak 1@2
site 1 cuda:0 device live 1/1 alloc 1/1 oldest 2
`

const oneReleased = `
process 7
total cuda:0 device live 0/0 alloc 1/1 peak 1@2
site 1 cuda:0 device live 0/0 alloc 1/1 oldest 0
`

const beforeTheAttach = "warning process 7 released a primary context from before the attach: its allocations are shown as live until NVML lists the process on no GPU"

var contextRules = []rule{
	{"the allocations of a context end when it is destroyed", inContext + "ctxdestroy t=3 ctx=c0", outOfContext + "release destroyed 6/95@3"},

	{"the allocations of a primary context end with its last reference", "ctxretain t=1 dev=0 ctx=c0\n" + inContext + "ctxrelease t=3 dev=0", outOfContext + "release released 6/95@3"},

	{"the allocations of a primary context end when it is reset", "ctxretain t=1 dev=0 ctx=c0\nctxretain t=1 dev=0 ctx=c0\n" + inContext + "ctxreset t=3 dev=0", outOfContext + "release reset 6/95@3"},

	{"a late report of a context's end spares a younger context with its handle", `
alloc t=2 addr=a0 size=1 stack=1 dev=0 ctx=c0
alloc t=4 addr=a0 size=2 stack=2 dev=0 ctx=c0
alloc t=4 addr=a1 size=4 stack=2 dev=0 ctx=c0
ctxdestroy t=3 ctx=c0`, `
process 7
total cuda:0 device live 2/6 alloc 3/7 peak 6@4
site 2 cuda:0 device live 2/6 alloc 2/6 oldest 4
site 1 cuda:0 device live 0/0 alloc 1/1 oldest 0
release destroyed 1/1@3`},

	{"an address that is given out again before its context's end is reported ended with it", `
alloc t=2 addr=a0 size=1 stack=1 dev=0 ctx=c0
alloc t=2 addr=a1 size=8 stack=1 dev=0 ctx=c0
alloc t=4 addr=a0 size=2 stack=2 dev=0 ctx=c1
ctxdestroy t=3 ctx=c0`, `
process 7
total cuda:0 device live 1/2 alloc 3/11 peak 10@4
site 2 cuda:0 device live 1/2 alloc 1/2 oldest 4
site 1 cuda:0 device live 0/0 alloc 2/9 oldest 0
release destroyed 2/9@3`},

	{"an address in another context is a reuse when that context does not end", `
alloc t=2 addr=a0 size=1 stack=1 dev=0 ctx=c0
alloc t=4 addr=a0 size=2 stack=2 dev=0 ctx=c1`, `
process 7
total cuda:0 device live 1/2 alloc 2/3 peak 2@4
site 2 cuda:0 device live 1/2 alloc 1/2 oldest 4
site 1 cuda:0 device live 0/0 alloc 1/1 oldest 0
stats reused 1`},

	{"an alias ends with its context", `
alias t=2 addr=a0 ctx=c0
ctxdestroy t=3 ctx=c0
free t=4 addr=a0`, `
process 7
stats unmatched 1`},

	{"while a primary context has references nothing ends", `
ctxretain t=1 dev=0 ctx=c0
ctxretain t=1 dev=0 ctx=c0
` + inOne + `
ctxrelease t=3 dev=0`, oneLive},

	{"a reset takes all references away", `
ctxretain t=1 dev=0 ctx=c0
ctxretain t=1 dev=0 ctx=c0
ctxreset t=1 dev=0
ctxretain t=1 dev=0 ctx=c0
` + inOne + `
ctxrelease t=3 dev=0`, oneReleased + "release released 1/1@3"},

	{"of a context from before the attach no release is known to be the last", `
begin t=1
name t=1
ctxretain t=1 dev=0 ctx=c0
` + inOne + `
ctxrelease t=3 dev=0`, oneLive + beforeTheAttach},

	{"nor of one that was never retained since", `
begin t=1
name t=1
` + inOne + `
ctxrelease t=3 dev=0
ctxretain t=4 dev=0 ctx=c0
ctxrelease t=5 dev=0`, oneLive + beforeTheAttach},

	{"but when the driver lists the process no longer, it was", `
begin t=1
name t=1
devices GPU-a
` + inOne + `
usage t=2 GPU-a=10
ctxrelease t=3 dev=0
usage t=3 GPU-a=10
usage t=4`, oneReleased + `
balance GPU-a cuda:0 usage 0 peak 10 baseline 0 live 0 gap 0
release released 1/1@4
` + beforeTheAttach},

	{"a driver that never listed the process does not say so", `
begin t=1
name t=1
` + inOne + `
ctxrelease t=3 dev=0
usage t=4`, oneLive + beforeTheAttach},

	{"a context that was retained again is in use, whatever the driver lists", `
begin t=1
name t=1
devices GPU-a
` + inOne + `
usage t=2 GPU-a=10
ctxrelease t=3 dev=0
ctxretain t=3 dev=0 ctx=c0
usage t=4`, oneLive + `
balance GPU-a cuda:0 usage 0 peak 10 baseline 0 live 0 gap 0
` + beforeTheAttach},

	{"after a reset all references are known, also of an older context", `
begin t=1
name t=1
ctxreset t=1 dev=0
ctxretain t=1 dev=0 ctx=c0
` + inOne + `
ctxrelease t=3 dev=0`, oneReleased + "release released 1/1@3"},

	{"a reset ends the allocations on its device in unknown contexts", `
ctxretain t=1 dev=0 ctx=c0
alloc t=2 addr=a0 size=1 stack=1 dev=0
alloc t=2 addr=b0 size=2 stack=1 dev=1
alloc t=2 addr=c0 size=4 stack=1
ctxreset t=3 dev=0`, `
process 7
total ? device live 1/4 alloc 1/4 peak 4@2
total cuda:0 device live 0/0 alloc 1/1 peak 1@2
total cuda:1 device live 1/2 alloc 1/2 peak 2@2
site 1 ? device live 1/4 alloc 1/4 oldest 2
site 1 cuda:1 device live 1/2 alloc 1/2 oldest 2
site 1 cuda:0 device live 0/0 alloc 1/1 oldest 0
release reset 1/1@3`},

	{"with one GPU a reset ends allocations without a device", `
devices GPU-a
alloc t=2 addr=a0 size=1 stack=1
ctxreset t=3 dev=0`, `
process 7
total cuda:0 device live 0/0 alloc 1/1 peak 1@2
site 1 cuda:0 device live 0/0 alloc 1/1 oldest 0
release reset 1/1@3`},

	{"a context that was made before the tracing is taken for the primary one of its device", `
begin t=1
name t=1
` + inOne + `
alloc t=2 addr=b0 size=2 stack=1 dev=1 ctx=c1
ctxreset t=3 dev=0`, `
process 7
total cuda:0 device live 0/0 alloc 1/1 peak 1@2
total cuda:1 device live 1/2 alloc 1/2 peak 2@2
site 1 cuda:1 device live 1/2 alloc 1/2 oldest 2
site 1 cuda:0 device live 0/0 alloc 1/1 oldest 0
release reset 1/1@3`},

	{"but not if it is that of another device, whose program uses a pool of this one", `
begin t=1
name t=1
ctxretain t=1 dev=1 ctx=c0
` + inOne + `
ctxreset t=3 dev=0`, oneLive},

	{"a context that the process created is not", inOne + `
ctxreset t=3 dev=0`, oneLive},

	{"a release without a device means the only one", `
ctxretain t=1 dev=0 ctx=c0
` + inOne + `
ctxrelease t=3`, oneReleased + "release released 1/1@3"},

	{"without a device and with several nothing ends", `
ctxretain t=1 dev=1 ctx=c1
` + inOne + `
ctxrelease t=3
ctxreset t=4`, oneLive + `
warning process 7 released the primary context of an unknown GPU: its allocations are still shown as live
warning process 7 reset an unknown GPU: its allocations are still shown as live`},

	{"a context determines the device of its allocations", `
ctxretain t=1 dev=0 ctx=c0
alloc t=2 addr=a0 size=1 stack=1 ctx=c0`, oneLive},

	{"a free that fails after its context ended brings nothing back", inOne + `
free t=3 addr=a0
ctxdestroy t=4 ctx=c0
freefailed t=5 result=709`, oneReleased},

	{"one line shows the allocations of a stack in several contexts", inOne + `
alloc t=3 addr=b0 size=2 stack=1 dev=0 ctx=c1`, `
process 7
total cuda:0 device live 2/3 alloc 2/3 peak 3@3
site 1 cuda:0 device live 2/3 alloc 2/3 oldest 2`},

	{"contexts belong to their process", `
ctxretain t=1 dev=0 ctx=c0
` + inOne + `
ctxretain t=1 dev=0 ctx=c0 pid=8
ctxrelease t=3 dev=0 pid=8
ctxdestroy t=4 ctx=c0 pid=8
ctxreset t=5 dev=0 pid=8`, oneLive + "process 8"},
}

// The end of a context must not take time for the allocations of others.
func BenchmarkContextDestroy(b *testing.B) {
	const n = 300_000
	l := New(Options{})
	for i := range uint64(n) {
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, Time: 1, Device: 1, Context: 1, Address: 1 + i, Size: 1})
	}
	b.ReportAllocs()
	for b.Loop() {
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, Time: 1, Context: 2, Address: 1 << 40, Size: 1})
		l.Apply(&Event{Op: ContextDestroy, PID: 7, Time: 1, Context: 2})
	}
	if r := l.Snapshot(2, time.Time{}).Releases; len(r) != 1 || r[0].Objects == 0 {
		b.Errorf("releases %+v", r)
	}
}
