// SPDX-License-Identifier: Apache-2.0

package pslist

import (
	"fmt"
	"slices"
	"testing"

	"github.com/vramprof/vramprof/tracer/gpuprocs"
)

// sharers returns processes that have the same dma-bufs and a descriptor of nvidiactl in pairs.
func sharers(processes, buffers int) (list []gpuprocs.Process, pids []uint32) {
	for i := range processes {
		p := gpuprocs.Process{PID: uint32(1<<30 + i), InnerID: uint32(1<<30 + i), Control: true, Passed: []gpuprocs.Passed{{Others: []uint32{uint32(1<<30 + i ^ 1)}}}}
		for k := range buffers {
			p.Buffers = append(p.Buffers, gpuprocs.Buffer{Inode: uint64(i/2*buffers + k), Bytes: 2 << 20, Exporter: "nvidia"})
		}
		list, pids = append(list, p), append(pids, p.PID)
	}
	return list, pids
}

// TestADmaBufOfManyNamesAFew: a process can pass one to all of its children.
func TestADmaBufOfManyNamesAFew(t *testing.T) {
	var list []gpuprocs.Process
	for i := range 1000 {
		list = append(list, gpuprocs.Process{PID: uint32(1 + i), Buffers: []gpuprocs.Buffer{{Inode: 7}}})
	}
	rows := merge(nil, indexKeepers(list), &driver{})
	for i := range rows {
		others := rows[i].Presence.Buffers[0].Others
		if len(others) != gpuprocs.MaxOthers || slices.Contains(others, rows[i].PID) {
			t.Fatalf("process %d shares it with %d others: %v", rows[i].PID, len(others), others)
		}
	}
}

// BenchmarkSharedBy is without gpuprocs.Scan, which has a benchmark.
func BenchmarkSharedBy(b *testing.B) {
	for _, c := range []struct{ processes, buffers int }{{100, 1}, {1000, 1}, {10_000, 1}, {100, 16}, {100, 256}, {1000, 16}} {
		b.Run(fmt.Sprintf("processes=%d/buffers=%d", c.processes, c.buffers), func(b *testing.B) {
			keepers, pids := sharers(c.processes, c.buffers)
			for b.Loop() {
				if got := sharedBy(pids, indexKeepers(keepers)); len(got) != c.processes {
					b.Fatalf("%d sentences", len(got))
				}
			}
		})
	}
}
