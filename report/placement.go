// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// placeDoubts describes what is uncertain about the GPUs of each process's memory.
func placeDoubts(s *ledger.Snapshot) (list []Doubt) {
	unplaced := make([]uint64, len(s.Processes))
	for _, x := range s.Parts() {
		unplaced[x.Process] += x.Unplaced
	}
	for i := range s.Processes {
		p := &s.Processes[i]
		switch p.Ordinals {
		case ledger.OrdinalsPaired:
			list = append(list, Doubt{AtBalance, format.Process(p) + ": the GPUs behind its device numbers are unknown; NVML's GPUs of the process are assumed, in NVML's order"})
		case ledger.OrdinalsDenied:
			list = append(list, Doubt{AtBalance, format.Process(p) + ": NVML lists it on other GPUs than its environment names; the GPUs behind its device numbers are unknown"})
		}
		if p.Deduced > 0 {
			list = append(list, Doubt{AtBalance, fmt.Sprintf(
				"%s: the GPU of %s is deduced only from the growth of NVML's figures", format.Process(p), format.Bytes(p.Deduced))})
		}
		if n := unplaced[i]; n > 0 {
			list = append(list, Doubt{AtBalance, fmt.Sprintf(
				"%s: the GPU of %s is unknown; it is subtracted from unexplained, and beyond that from the memory before attach", format.Process(p), format.Bytes(n))})
		}
	}
	return list
}

// unplacedOlder returns what PyTorch's allocators held before the attach on unknown GPUs, which no
// part includes.
func unplacedOlder(s *ledger.Snapshot) (list []Holding) {
	listed := make([]bool, len(s.Processes))
	for i := range s.Balances {
		listed[s.Balances[i].Process] = true
	}
	for i := range s.Tensors {
		t := &s.Tensors[i]
		if !listed[t.Process] || t.Device == ledger.CPUDevice || s.BalanceOf(t.Process, t.Device) >= 0 {
			continue
		}
		uuid := GPUUUID(s, t.Process, t.Device, ledger.Tensor)
		add := func(plane, mark string, live uint64) {
			if live != 0 {
				list = append(list, Holding{Plane: plane, Mark: mark, Process: t.Process, Device: t.Device, UUID: uuid, Live: int64(live)})
			}
		}
		add(PlaneTensor, MarkUntraced, t.Untraced)
		add(PlaneBefore, MarkOlder, t.Older-t.OlderAsleep-t.OlderMoved-t.Untraced)
		add(PlaneBefore, MarkOlderCached, t.OlderCached)
	}
	return list
}
