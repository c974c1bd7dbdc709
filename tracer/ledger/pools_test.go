// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger/quota"
)

var poolRules = []rule{
	{"a pool keeps its maximum until it is trimmed", `
poolcreate t=1 handle=b dev=0
poolthreshold t=1 handle=b size=60
alloc t=2 addr=a0 size=100 stack=1 kind=async handle=b
alloc t=2 addr=a1 size=50 stack=1 kind=async handle=b
free t=3 addr=a0`, `
process 7
total cuda:0 async live 1/50 alloc 2/150 peak 150@2
site 1 cuda:0 async live 1/50 alloc 2/150 oldest 2
pool b cuda:0 used 1/50 reserve 150 threshold 60`},

	{"a trim leaves used memory and the bytes that it names", `
poolcreate t=1 handle=b dev=0
poolcreate t=1 handle=c dev=0
poolcreate t=1 handle=d dev=0
alloc t=2 addr=a0 size=100 stack=1 kind=async handle=b
alloc t=2 addr=a1 size=50 stack=1 kind=async handle=b
alloc t=2 addr=a2 size=50 stack=1 kind=async handle=c
free t=3 addr=a0
free t=3 addr=a2
pooltrim t=4 handle=b
pooltrim t=4 handle=c size=20
pooltrim t=4 handle=d size=20
pooltrim t=4 handle=e size=20`, `
process 7
total cuda:0 async live 1/50 alloc 3/200 peak 200@2
site 1 cuda:0 async live 1/50 alloc 3/200 oldest 2
pool b cuda:0 used 1/50 reserve 50
pool c cuda:0 used 0/0 reserve 20
pool d cuda:0 used 0/0 reserve 0`},

	{"the device of an allocation is that of its pool, if that is known", `
poolcreate t=1 handle=b dev=1
alloc t=2 addr=a0 size=1 stack=1 kind=async handle=b dev=0
alloc t=2 addr=a1 size=2 stack=1 kind=async handle=c dev=0`, `
process 7
total cuda:0 async live 1/2 alloc 1/2 peak 2@2
total cuda:1 async live 1/1 alloc 1/1 peak 1@2
site 1 cuda:0 async live 1/2 alloc 1/2 oldest 2
site 1 cuda:1 async live 1/1 alloc 1/1 oldest 2
pool c cuda:0 used 1/2 reserve 2
pool b cuda:1 used 1/1 reserve 1`},

	{"a late report of a pool's end spares a younger pool with its handle", `
poolcreate t=1 handle=b dev=0
alloc t=1 addr=a0 size=1 stack=1 kind=async handle=b
poolcreate t=4 handle=b dev=1
alloc t=5 addr=a1 size=2 stack=1 kind=async handle=b
pooldestroy t=3 handle=b`, `
process 7
total cuda:0 async live 1/1 alloc 1/1 peak 1@1
total cuda:1 async live 1/2 alloc 1/2 peak 2@5
site 1 cuda:1 async live 1/2 alloc 1/2 oldest 5
site 1 cuda:0 async live 1/1 alloc 1/1 oldest 1
pool b cuda:0 used 1/1 reserve 1 destroyed
pool b cuda:1 used 1/2 reserve 2`},

	{"the handle of a device's own pool stands for it", `
poolown t=1 handle=b dev=1
alloc t=2 addr=a0 size=4 stack=1 kind=async dev=1
alloc t=2 addr=a1 size=2 stack=1 kind=async handle=b dev=0
poolthreshold t=3 handle=b size=60
free t=4 addr=a0
pooltrim t=5 handle=b size=3`, `
process 7
total cuda:1 async live 1/2 alloc 2/6 peak 6@2
site 1 cuda:1 async live 1/2 alloc 2/6 oldest 2
pool 0 cuda:1 used 1/2 reserve 3 threshold 60`},

	{"an allocation that fails is on its pool's device", `
poolcreate t=1 handle=b dev=1
allocfailed t=2 size=4 stack=1 kind=async handle=b dev=0 result=2`, `
process 7
failure 1 cuda:1 result 2 count 1 bytes 4 last 4@2
pool b cuda:1 used 0/0 reserve 0`},

	{"without a pool it is the selected one, else the device's own", `
poolcreate t=1 handle=b dev=0
alloc t=2 addr=a0 size=1 stack=1 kind=async dev=0
poolselect t=3 dev=0 handle=b
alloc t=4 addr=a1 size=2 stack=1 kind=async dev=0
alloc t=4 addr=a2 size=4 stack=1 kind=async dev=1
pooldestroy t=5 handle=b
alloc t=6 addr=a3 size=8 stack=1 kind=async dev=0`, `
process 7
total cuda:0 async live 3/11 alloc 3/11 peak 11@6
total cuda:1 async live 1/4 alloc 1/4 peak 4@4
site 1 cuda:0 async live 3/11 alloc 3/11 oldest 2
site 1 cuda:1 async live 1/4 alloc 1/4 oldest 4
pool 0 cuda:0 used 2/9 reserve 9
pool b cuda:0 used 1/2 reserve 2 destroyed
pool 0 cuda:1 used 1/4 reserve 4`},

	{"a destroyed pool vanishes with its last allocation", `
poolcreate t=1 handle=b dev=0
alloc t=2 addr=a0 size=1 stack=1 kind=async handle=b
alloc t=2 addr=a1 size=2 stack=1 kind=async handle=b
pooldestroy t=3 handle=b
free t=4 addr=a0
poolcreate t=5 handle=c dev=0
pooldestroy t=5 handle=c
poolcreate t=5 handle=b dev=0
alloc t=6 addr=a3 size=4 stack=1 kind=async handle=b`, `
process 7
total cuda:0 async live 2/6 alloc 3/7 peak 6@6
site 1 cuda:0 async live 2/6 alloc 3/7 oldest 2
pool b cuda:0 used 1/4 reserve 4
pool b cuda:0 used 1/2 reserve 2 destroyed`},

	{"a failed free puts an allocation back into its pool", `
alloc t=2 addr=a0 size=5 stack=1 kind=async dev=0 handle=b
alloc t=2 addr=a1 size=6 stack=1 kind=async dev=0 handle=b
free t=3 addr=a0
pooldestroy t=4 handle=b
freefailed t=5 result=1`, `
process 7
total cuda:0 async live 2/11 alloc 2/11 peak 11@2
site 1 cuda:0 async live 2/11 alloc 2/11 oldest 2
pool b cuda:0 used 2/11 reserve 11 destroyed`},

	{"a failed free after its pool vanished is undone without it", `
alloc t=2 addr=a0 size=5 stack=1 kind=async dev=0 handle=b
free t=3 addr=a0
pooldestroy t=4 handle=b
freefailed t=5 result=1
poolcreate t=6 handle=c dev=0
free t=7 addr=a0`, `
process 7
total cuda:0 async live 0/0 alloc 1/5 peak 5@2
site 1 cuda:0 async live 0/0 alloc 1/5 oldest 0
pool c cuda:0 used 0/0 reserve 0`},

	{"with its context an allocation leaves its pool, and the pool stays", `
poolcreate t=1 handle=b dev=0
alloc t=2 addr=a0 size=5 stack=1 kind=async handle=b ctx=c0
ctxdestroy t=3 ctx=c0`, `
process 7
total cuda:0 async live 0/0 alloc 1/5 peak 5@2
site 1 cuda:0 async live 0/0 alloc 1/5 oldest 0
release destroyed 1/5@3
pool b cuda:0 used 0/0 reserve 5`},

	{"unused memory of pools is part of the rounding of their device", `
devices GPU-a GPU-b
usage t=1 GPU-a=100 GPU-b=100
alloc t=2 addr=a0 size=50 stack=1 kind=async dev=0
alloc t=2 addr=a1 size=7 stack=1 kind=async dev=1
poolcreate t=2 handle=b dev=0
alloc t=2 addr=a2 size=5 stack=1 kind=async handle=b
free t=3 addr=a0
free t=3 addr=a2
usage t=4 GPU-a=155 GPU-b=107`, `
process 7
total cuda:0 async live 0/0 alloc 2/55 peak 55@2
total cuda:1 async live 1/7 alloc 1/7 peak 7@2
site 1 cuda:1 async live 1/7 alloc 1/7 oldest 2
site 1 cuda:0 async live 0/0 alloc 2/55 oldest 0
balance GPU-a cuda:0 usage 155 peak 155 baseline 100 live 0 gap 0 rounding 55 idle 55
balance GPU-b cuda:1 usage 107 peak 107 baseline 100 live 7 gap 0
pool 0 cuda:0 used 0/0 reserve 50
pool b cuda:0 used 0/0 reserve 5
pool 0 cuda:1 used 1/7 reserve 7`},

	{"with one GPU the device's own pool is one", `
devices GPU-a
alloc t=2 addr=a0 size=50 stack=1 kind=async
alloc t=2 addr=a1 size=5 stack=1 kind=async dev=0
free t=3 addr=a0
usage t=4 GPU-a=100`, `
process 7
total cuda:0 async live 1/5 alloc 2/55 peak 55@2
site 1 cuda:0 async live 1/5 alloc 2/55 oldest 2
balance GPU-a cuda:0 usage 100 peak 100 baseline 95 live 5 gap 0 idle 50
pool 0 cuda:0 used 1/5 reserve 55`},

	{"a pool is forgotten a while after its process ended", `
poolcreate t=1 handle=b dev=0
alloc t=2 addr=a0 size=5 stack=1 kind=async handle=b
exit t=3
poolcreate t=60 handle=b dev=1 pid=8`, `
process 7 ended 3
total cuda:0 async live 1/5 alloc 1/5 peak 5@2
site 1 cuda:0 async live 1/5 alloc 1/5 oldest 2
process 8
pool b cuda:1 used 0/0 reserve 0`},
}

func TestPoolsAreBounded(t *testing.T) {
	l := New(Options{})
	for i := range uint64(maxPools/quota.ProcessPart + 1000) {
		l.Apply(&Event{Op: PoolCreate, PID: 7, Time: 1, Handle: 1 + i})
	}
	l.Apply(&Event{Op: Alloc, Kind: Async, PID: 7, Time: 1, Handle: maxPools/quota.ProcessPart + 999, Address: 1, Size: 8})
	s := l.Snapshot(2, time.Time{})
	if len(s.Pools) != maxPools/quota.ProcessPart || len(s.Warnings) != 1 || s.Sites[0].LiveBytes != 8 {
		t.Errorf("%d pools, warnings %q, first site %+v", len(s.Pools), s.Warnings, s.Sites[0])
	}
	for i := range uint64(10 * maxPools) { // those that are destroyed make room
		l.Apply(&Event{Op: PoolDestroy, PID: 7, Time: 1, Handle: 1 + i})
		l.Apply(&Event{Op: PoolCreate, PID: 7, Time: 1, Handle: 2 + i})
	}
	if len(l.byPID[7].pools) > maxPools/quota.ProcessPart+1 {
		t.Errorf("%d pools were made, want at most %d", len(l.byPID[7].pools), maxPools/quota.ProcessPart+1)
	}
}
