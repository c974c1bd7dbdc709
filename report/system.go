// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// systemHoldings returns the memory that the system allocated on the NUMA nodes of GPUs.
func systemHoldings(s *ledger.Snapshot) (list []Holding) {
	for i := range s.System {
		x := &s.System[i]
		list = append(list, Holding{Plane: PlaneSystem, Mark: MarkSystem, Process: x.Process, Device: x.Device, UUID: x.UUID, Live: int64(x.Bytes)})
	}
	return list
}

// SystemText returns "40.0 GiB that the system allocated on the NUMA nodes of GPUs is in no sum:
// …", with the age of the readings, or "" if there is none.
func SystemText(s *ledger.Snapshot) string {
	var sum, age uint64
	least := ""
	for i := range s.System {
		x := &s.System[i]
		sum += x.Bytes
		age = max(age, Minus(s.End, x.Time))
		if x.Cut {
			least = "at least "
		}
	}
	if sum == 0 {
		return ""
	}
	return fmt.Sprintf("%s%s of processes' memory, which the system allocated on the NUMA nodes of GPUs, is in no sum (read up to %s before this moment); "+
		"NVML's figures may include it, in unexplained or before attach: NVIDIA does not document it", least, format.Bytes(sum), format.Span(age))
}

// GPUText returns how a GPU's memory belongs to the host's: "NUMA node 1", "ATS", "the host's
// memory"; nothing for most GPUs.
func GPUText(g *ledger.GPU) (list []string) {
	if g.Integrated {
		list = append(list, "shares the host's memory")
	}
	if g.HasNode {
		list = append(list, fmt.Sprintf("NUMA node %d", g.Node))
	}
	if g.Addressing == ledger.AddressingATS {
		list = append(list, "ATS")
	}
	return list
}
