// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// unlist moves the shares of memory where NVML no longer lists their process into PlaneAsleep, and
// appends what they lack of its parts. Shares of sites stay in their places, with 0 bytes.
func unlist(s *ledger.Snapshot, list []Holding) []Holding {
	type onGPU struct {
		process int
		uuid    string
	}
	if !s.AnyUnlisted() {
		return list
	}
	moved := map[onGPU]int64{}
	for i := range list {
		h := &list[i]
		if h.Apart() || h.Plane == PlaneImported || h.Live == 0 || !s.IsUnlisted(h.Process, h.Device) {
			continue
		}
		asleep := *h
		asleep.Plane, asleep.Mark = PlaneAsleep, MarkUnlisted
		moved[onGPU{h.Process, h.UUID}] += h.Live
		if h.Live = 0; h.Site == nil {
			*h = asleep
			continue
		}
		list = append(list, asleep)
	}
	for _, x := range s.Parts() {
		rest := int64(x.Unlisted)
		for _, uuid := range []string{x.UUID, ""} { // unknown GPUs are in the first part of the process
			n := min(moved[onGPU{x.Process, uuid}], rest)
			moved[onGPU{x.Process, uuid}] -= n
			rest -= n
		}
		if rest > 0 {
			list = append(list, Holding{Plane: PlaneAsleep, Mark: MarkUnlisted, Process: x.Process, Device: x.Device, UUID: x.UUID, Live: rest})
		}
	}
	return list
}

// UnlistedTexts describes what processes hold where NVML no longer lists them.
func UnlistedTexts(s *ledger.Snapshot) (list []string) {
	for i, x := range s.Parts() {
		if x.Unlisted == 0 {
			continue
		}
		b := &s.Balances[i]
		list = append(list, fmt.Sprintf("%s: NVML has not listed it on GPU %s for %s: at least %s are checkpointed, or where they are is unknown; they are in no sum",
			format.Process(&s.Processes[x.Process]), untrusted.Clean(format.ShortUUID(x.UUID)), format.Span(Minus(s.End, b.Time)), format.Bytes(x.Unlisted)))
	}
	return list
}
