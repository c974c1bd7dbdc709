// SPDX-License-Identifier: Apache-2.0

package reporttest

import (
	"fmt"
	"time"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// LeakingRanksStacks are the stacks of LeakingRanks: 1 leaks in all ranks, 2 in rank 3 alone, 3 are
// weights, of which rank 0 has 4 GiB more, and 4 is a table of rank 0 alone.
func LeakingRanksStacks() StackMap {
	st := StackMap{}
	for i, f := range []callstack.Frame{
		Script("step", "/home/ada/llm/train.py", 25), Script("Log.keep", "/home/ada/llm/log.py", 9),
		Script("load", "/home/ada/llm/model.py", 12), Script("Table.build", "/home/ada/llm/table.py", 40),
	} {
		st[uint64(i+1)] = []callstack.Frame{Native("cudaMalloc", CUDART, 1), f, Script("<module>", "/home/ada/llm/train.py", 7)}
	}
	return st
}

// LeakingRanks is a job of n ranks, each on its own GPU, that leak at one line, the last rank three
// times as fast as the others; see LeakingRanksStacks.
func LeakingRanks(n int) *ledger.Snapshot {
	begin := 1000 * Second
	l := ledger.New(ledger.Options{Begin: begin, Host: "gpu-box-3"})
	address := uint64(0)
	event := func(rank int, at, size, stack uint64) {
		address += 1 << 36
		pid := uint32(4242 + rank)
		l.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: pid, TID: pid, Device: int32(rank), Time: begin + at*Second/10, Address: address, Size: size, Stack: stack, API: "cudaMalloc"})
	}
	var gpus []string
	for i := range n {
		gpus = append(gpus, fmt.Sprintf("GPU-%08x-0000-0000-0000-000000000000", 0x1a2b3c4d+i))
	}
	for i := range n {
		l.Tell(ledger.Process{PID: uint32(4242 + i), Comm: "python3", Exe: "/usr/bin/python3.11", Begin: begin, Devices: gpus,
			Workload: ledger.Workload{Job: "llama-7", Rank: fmt.Sprint(i), LocalRank: fmt.Sprint(i), WorldSize: fmt.Sprint(n)}})
		event(i, 1, 2*GiB, 3)
	}
	event(0, 1, 4*GiB, 3)
	event(0, 2, 1*GiB, 4)
	for k := range uint64(150) {
		for i := range n {
			size := 2 * MiB
			if i == n-1 {
				size *= 3
			}
			event(i, 10+4*k, size, 1)
		}
		event(3, 11+4*k, 1*MiB, 2)
	}
	return l.Snapshot(begin+61*Second, time.Date(2026, 11, 21, 12, 31, 36, 0, time.UTC))
}
