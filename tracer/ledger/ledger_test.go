// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// A rule has events and calls, and the books that they must result in. Times are seconds, addresses
// hexadecimal; defaults are pid 7, tid = pid, unknown device, kind device.
type rule struct{ name, in, want string }

var rules = []rule{
	{"an allocation is live until its free", `
alloc t=1 addr=a0 size=100 stack=1
alloc t=2 addr=b0 size=50 stack=1
free t=3 addr=a0`, `
process 7
total ? device live 1/50 alloc 2/150 peak 150@2
site 1 ? device live 1/50 alloc 2/150 oldest 2`},

	{"sites differ by process, stack, API, kind and device", `
alloc t=1 addr=1 size=1 stack=1 dev=0
alloc t=1 addr=2 size=2 stack=2 dev=0
alloc t=1 addr=3 size=4 stack=1 dev=1
alloc t=1 addr=4 size=8 stack=1 dev=0 kind=3 api=cudaMallocHost
alloc t=1 addr=5 size=16 stack=1 dev=0 api=cudaMallocManaged kind=2
alloc t=1 addr=1 size=32 stack=1 dev=0 pid=8`, `
process 7
total cuda:0 device live 2/3 alloc 2/3 peak 3@1
total cuda:0 managed live 1/16 alloc 1/16 peak 16@1
total cuda:0 pinned live 1/8 alloc 1/8 peak 8@1
total cuda:1 device live 1/4 alloc 1/4 peak 4@1
site 1 cuda:0 managed live 1/16 alloc 1/16 oldest 1 cudaMallocManaged
site 1 cuda:0 pinned live 1/8 alloc 1/8 oldest 1 cudaMallocHost
site 1 cuda:1 device live 1/4 alloc 1/4 oldest 1
site 2 cuda:0 device live 1/2 alloc 1/2 oldest 1
site 1 cuda:0 device live 1/1 alloc 1/1 oldest 1
process 8
total cuda:0 device live 1/32 alloc 1/32 peak 32@1
site 1 cuda:0 device live 1/32 alloc 1/32 oldest 1`},

	{"a free of an unknown address is counted, of null is not", `
free t=1 addr=a0
free t=1 addr=0`, `
process 7
stats unmatched 1`},

	{"malloc of nothing books nothing", `
alloc t=1 addr=0 size=0 stack=1
alloc t=1 addr=a0 size=0 stack=1`, ``},

	{"a failed free is undone with site, age and peak", `
alloc t=1 addr=a0 size=100 stack=1
alloc t=2 addr=b0 size=100 stack=1
alloc t=3 addr=c0 size=100 stack=1
free t=4 addr=a0 tid=9
free t=4 addr=b0 tid=10
freefailed t=5 tid=10 result=1
freefailed t=5 tid=9 result=700`, `
process 7
total ? device live 3/300 alloc 3/300 peak 300@3
site 1 ? device live 3/300 alloc 3/300 oldest 1`},

	{"only the last free of the thread is undone, and once", `
alloc t=1 addr=a0 size=100 stack=1
alloc t=1 addr=b0 size=10 stack=1
free t=2 addr=a0
free t=3 addr=b0
freefailed t=4 result=1
freefailed t=4 result=1`, `
process 7
total ? device live 1/10 alloc 2/110 peak 110@1
site 1 ? device live 1/10 alloc 2/110 oldest 1`},

	{"a failed free of an unknown address was no free", `
free t=1 addr=a0
freefailed t=2 result=1`, `
process 7`},

	{"a free that failed although its address was handed out again stays", `
alloc t=1 addr=a0 size=100 stack=1
free t=2 addr=a0 tid=9
alloc t=3 addr=a0 size=50 stack=2 tid=8
freefailed t=4 tid=9 result=1`, `
process 7
total ? device live 1/50 alloc 2/150 peak 100@1
site 2 ? device live 1/50 alloc 1/50 oldest 3
site 1 ? device live 0/0 alloc 1/100 oldest 0`},

	{"a free during the shutdown of the driver is no failure", `
alloc t=1 addr=a0 size=100 stack=1
free t=2 addr=a0
freefailed t=2 result=4`, `
process 7
total ? device live 0/0 alloc 1/100 peak 100@1
site 1 ? device live 0/0 alloc 1/100 oldest 0`},

	{"an allocation at a live address replaces it", `
alloc t=1 addr=a0 size=100 stack=1
alloc t=2 addr=a0 size=50 stack=2`, `
process 7
total ? device live 1/50 alloc 2/150 peak 100@1
site 2 ? device live 1/50 alloc 1/50 oldest 2
site 1 ? device live 0/0 alloc 1/100 oldest 0
stats reused 1`},

	{"the live set of an exited process stays as it was", `
alloc t=1 addr=a0 size=100 stack=1
exit t=5
alloc t=60 addr=a0 size=1 stack=1 pid=8`, `
process 7 ended 5
total ? device live 1/100 alloc 1/100 peak 100@1
site 1 ? device live 1/100 alloc 1/100 oldest 1
process 8
total ? device live 1/1 alloc 1/1 peak 1@60
site 1 ? device live 1/1 alloc 1/1 oldest 60`},

	{"late events of a dead pid belong to it, younger ones to the next process", `
alloc t=1 addr=a0 size=100 stack=1
exit t=5
alloc t=6 addr=a0 size=7 stack=1
free t=4 addr=a0
alloc t=5 addr=b0 size=11 stack=1
free t=7 addr=b0`, `
process 7 ended 5
total ? device live 1/11 alloc 2/111 peak 100@1
site 1 ? device live 1/11 alloc 2/111 oldest 5
process 7
total ? device live 1/7 alloc 1/7 peak 7@6
site 1 ? device live 1/7 alloc 1/7 oldest 6
stats unmatched 1`},

	{"exec begins a new process with the same pid", `
name pid=7 comm=sh t=1
alloc t=2 addr=a0 size=100 stack=1
exec t=3
name pid=7 comm=train t=4
free t=5 addr=a0
exit t=9
exit t=9`, `
process 7 sh ended 3
total ? device live 1/100 alloc 1/100 peak 100@2
site 1 ? device live 1/100 alloc 1/100 oldest 2
process 7 train ended 9
stats unmatched 1`},

	{"a process may be named after its first events", `
alloc t=2 addr=a0 size=100 stack=1
name comm=train t=3`, `
process 7 train
total ? device live 1/100 alloc 1/100 peak 100@2
site 1 ? device live 1/100 alloc 1/100 oldest 2`},

	{"the end of an unknown process is nothing", `
exit t=1`, ``},

	{"beyond the limit an allocation is counted but not live", `
maxlive 1
alloc t=1 addr=a0 size=100 stack=1
alloc t=2 addr=b0 size=50 stack=1
free t=3 addr=b0`, `
process 7
total ? device live 1/100 alloc 2/150 peak 100@1
site 1 ? device live 1/100 alloc 2/150 oldest 1
stats unmatched 1 evicted 1`},

	{"beyond the limit a failed free brings nothing back", `
maxlive 1
alloc t=1 addr=a0 size=100 stack=1
free t=2 addr=a0 tid=9
alloc t=3 addr=b0 size=50 stack=1
freefailed t=4 tid=9 result=1`, `
process 7
total ? device live 1/50 alloc 2/150 peak 100@1
site 1 ? device live 1/50 alloc 2/150 oldest 3
stats evicted 1`},

	{"failures are summed by site and result and book nothing", `
allocfailed t=1 size=100 stack=1 result=2
allocfailed t=2 size=300 stack=1 result=2
allocfailed t=3 size=9 stack=1 result=900`, `
process 7
failure 1 ? result 2 count 2 bytes 400 last 300@2
failure 1 ? result 900 count 1 bytes 9 last 9@3`},

	{"an absurd size that failed does not wrap the sum", `
allocfailed t=1 size=-2 stack=1 result=2
allocfailed t=2 size=9 stack=1 result=2
allocfailed t=3 size=unknown stack=1 result=2`, `
process 7
failure 1 ? result 2 count 3 bytes 18446744073709551615 last 0@3`},

	{"one GPU has the allocations without a device, with the peak of both together", `
devices GPU-a
alloc t=1 addr=a0 size=100 stack=1
free t=2 addr=a0
alloc t=3 addr=a0 size=60 stack=1 dev=0
alloc t=4 addr=b0 size=60 stack=1
alloc t=5 addr=c0 size=5 stack=2
alloc t=6 addr=d0 size=3 stack=3 kind=3
allocfailed t=7 size=9 stack=1 result=2
allocfailed t=8 size=7 stack=1 result=2 dev=0`, `
process 7
total ? pinned live 1/3 alloc 1/3 peak 3@6
total cuda:0 device live 3/125 alloc 4/225 peak 125@5
site 1 cuda:0 device live 2/120 alloc 3/220 oldest 3
site 2 cuda:0 device live 1/5 alloc 1/5 oldest 5
site 3 ? pinned live 1/3 alloc 1/3 oldest 6
failure 1 cuda:0 result 2 count 2 bytes 16 last 7@8`},

	{"of several GPUs the one that NVML lists has the allocations without a device", `
devices GPU-a GPU-b
alloc t=1 addr=a0 size=100 stack=1
usage t=2 GPU-b=500`, `
process 7
total cuda:1 device live 1/100 alloc 1/100 peak 100@1
site 1 cuda:1 device live 1/100 alloc 1/100 oldest 1
balance GPU-b cuda:1 usage 500 peak 500 baseline 400 live 100 gap 0`},

	{"of several GPUs in use none has the allocations without a device", `
devices GPU-a GPU-b
alloc t=1 addr=a0 size=100 stack=1
alloc t=1 addr=b0 size=10 stack=1 dev=1
usage t=2 GPU-a=300 GPU-b=500`, `
process 7
total ? device live 1/100 alloc 1/100 peak 100@1
total cuda:1 device live 1/10 alloc 1/10 peak 10@1
site 1 ? device live 1/100 alloc 1/100 oldest 1
site 1 cuda:1 device live 1/10 alloc 1/10 oldest 1
balance GPU-a cuda:0 usage 300 peak 300 baseline 300 live 0 gap 0
balance GPU-b cuda:1 usage 500 peak 500 baseline 490 live 10 gap 0`},

	{"the baseline is the usage at the first reading", `
name t=1 comm=train
usage t=1 GPU-a=1000
alloc t=2 addr=a0 size=100 stack=1
alloc t=2 addr=b0 size=7 stack=1 kind=3
usage t=3 GPU-a=1150`, `
process 7 train
total ? device live 1/100 alloc 1/100 peak 100@2
total ? pinned live 1/7 alloc 1/7 peak 7@2
site 1 ? device live 1/100 alloc 1/100 oldest 2
site 1 ? pinned live 1/7 alloc 1/7 oldest 2
balance GPU-a ? usage 1150 peak 1150 baseline 1000 live 100 gap 50`},

	{"a rough reading fixes no baseline", `
alloc t=2 addr=a0 size=100 stack=1
usage t=3 GPU-a=~1000
alloc t=4 addr=b0 size=50 stack=1
usage t=5 GPU-a=1000`, `
process 7
total ? device live 2/150 alloc 2/150 peak 150@4
site 1 ? device live 2/150 alloc 2/150 oldest 2
balance GPU-a ? usage 1000 peak 1000 baseline 850 live 150 gap 0`},

	{"memory of a call that returns after the reading is no baseline", `
usage t=1 pid=9
alloc t=2 addr=a0 size=100 stack=1
usage t=3 GPU-a=1050
alloc t=4 addr=b0 size=50 stack=1
usage t=5 GPU-a=1050
alloc t=6 addr=c0 size=7 stack=1
usage t=7 GPU-a=1100
usage t=9 GPU-a=200`, `
process 7
total ? device live 3/157 alloc 3/157 peak 157@6
site 1 ? device live 3/157 alloc 3/157 oldest 2
balance GPU-a ? usage 200 peak 1100 baseline 900 live 157 gap -857
process 9`},

	{"a rough reading is of the moment since NVML was asked at which it explains itself", `
name t=1 comm=train
usage t=1 GPU-a=1000
alloc t=2 addr=a0 size=100 stack=1
open t=3
alloc t=3 addr=b0 size=400 stack=1
free t=3 addr=a0
alloc t=3 addr=c0 size=300 stack=1
usage t=4 GPU-a=~1450`, `
process 7 train
total ? device live 2/700 alloc 3/800 peak 700@3
site 1 ? device live 2/700 alloc 3/800 oldest 3
balance GPU-a ? usage 1450 peak 1450 baseline 1000 live 450 gap 0`},

	{"rough readings alone find the baseline together", `
name t=1 comm=train
open t=1
alloc t=1 addr=a0 size=100 stack=1
alloc t=1 addr=b0 size=300 stack=1
usage t=2 GPU-a=~1100
open t=3
alloc t=3 addr=c0 size=500 stack=1
free t=3 addr=c0
free t=3 addr=a0
usage t=4 GPU-a=~1300
open t=5
alloc t=5 addr=d0 size=10 stack=1
usage t=6 GPU-a=~1310`, `
process 7 train
total ? device live 2/310 alloc 4/910 peak 900@3
site 1 ? device live 2/310 alloc 4/910 oldest 1
balance GPU-a ? usage 1310 peak 1310 baseline 1000 live 310 gap 0`},

	{"a rough reading beyond all that was live keeps the rest as the gap", `
name t=1 comm=train
usage t=1 GPU-a=1000
open t=2
alloc t=2 addr=a0 size=100 stack=1
usage t=3 GPU-a=~1150`, `
process 7 train
total ? device live 1/100 alloc 1/100 peak 100@2
site 1 ? device live 1/100 alloc 1/100 oldest 2
balance GPU-a ? usage 1150 peak 1150 baseline 1000 live 100 gap 50 since 0 doubt 100`},

	{"a free of older memory makes the gap negative", `
name t=1 comm=train
usage t=1 GPU-a=1000
free t=2 addr=a0
usage t=3 GPU-a=900`, `
process 7 train
balance GPU-a ? usage 900 peak 1000 baseline 1000 live 0 gap -100
stats unmatched 1`},

	{"baseline is never negative", `
alloc t=2 addr=a0 size=100 stack=1
usage t=3 GPU-a=40`, `
process 7
total ? device live 1/100 alloc 1/100 peak 100@2
site 1 ? device live 1/100 alloc 1/100 oldest 2
balance GPU-a ? usage 40 peak 40 baseline 0 live 100 gap -60`},

	{"an ended process keeps its last reading", `
usage t=1 GPU-a=900
alloc t=2 addr=a0 size=100 stack=1
usage t=3 GPU-a=1000
alloc t=4 addr=b0 size=100 stack=1
exit t=5
usage t=6 GPU-a=77
usage t=7`, `
process 7 ended 5
total ? device live 2/200 alloc 2/200 peak 200@4
site 1 ? device live 2/200 alloc 2/200 oldest 2
balance GPU-a ? usage 1000 peak 1000 baseline 900 live 100 gap 0`},

	{"a process that left the GPU uses nothing", `
alloc t=2 addr=a0 size=100 stack=1
usage t=3 GPU-a=1000
free t=4 addr=a0
usage t=5`, `
process 7
total ? device live 0/0 alloc 1/100 peak 100@2
site 1 ? device live 0/0 alloc 1/100 oldest 0
balance GPU-a ? usage 0 peak 1000 baseline 0 live 0 gap 0`},

	{"devices learnt late explain earlier readings", `
alloc t=1 addr=a0 size=100 stack=1 dev=0
alloc t=1 addr=b0 size=10 stack=1 dev=1
usage t=2 GPU-a=300 GPU-b=500
devices GPU-b GPU-a`, `
process 7
total cuda:0 device live 1/100 alloc 1/100 peak 100@1
total cuda:1 device live 1/10 alloc 1/10 peak 10@1
site 1 cuda:0 device live 1/100 alloc 1/100 oldest 1
site 1 cuda:1 device live 1/10 alloc 1/10 oldest 1
balance GPU-a cuda:1 usage 300 peak 300 baseline 290 live 10 gap 0
balance GPU-b cuda:0 usage 500 peak 500 baseline 400 live 100 gap 0`},
}

func TestRules(t *testing.T) {
	for _, r := range slices.Concat(rules, spaceRules, physicalRules, contextRules, poolRules, tensorRules, segmentRules, asleepRules) {
		t.Run(r.name, func(t *testing.T) {
			s := play(t, r.in).Snapshot(100e9, time.Time{})
			checkSums(t, s)
			got := strings.TrimSpace(describe(s))
			if want := strings.TrimSpace(strings.ReplaceAll(r.want, "\n\n", "\n")); got != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}
