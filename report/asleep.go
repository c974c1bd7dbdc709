// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Awake returns how many of a site's live bytes have memory.
func Awake(x *ledger.Site) uint64 { return Minus(x.LiveBytes, x.Asleep) }

// AwakeObjects returns how many of a site's live objects may have memory. How many of them are
// asleep is unknown unless all of them are.
func AwakeObjects(x *ledger.Site) uint64 {
	if x.Asleep > 0 && Awake(x) == 0 {
		return 0
	}
	return x.LiveObjects
}

// AsleepBytes returns how many bytes of tensors are asleep in all processes, allocated before or
// after the attach.
func AsleepBytes(s *ledger.Snapshot) (sum uint64) {
	for i := range s.Tensors {
		sum += s.Tensors[i].Asleep + s.Tensors[i].OlderAsleep
	}
	return sum
}

// asleepHoldings returns the bytes of each site that are asleep.
func asleepHoldings(s *ledger.Snapshot) (list []Holding) {
	for i := range s.Sites {
		if x := &s.Sites[i]; x.Asleep > 0 {
			list = append(list, Holding{
				Plane: PlaneAsleep, Mark: MarkAsleep, Site: x, Live: int64(x.Asleep),
				Process: x.Process, Device: x.Device, UUID: GPUUUID(s, x.Process, x.Device, x.Kind),
			})
		}
	}
	return list
}

// olderAsleep returns the bytes that are asleep and were allocated before the attach.
func olderAsleep(s *ledger.Snapshot) (list []Holding) {
	for i := range s.Tensors {
		if t := &s.Tensors[i]; t.OlderAsleep > 0 {
			list = append(list, Holding{
				Plane: PlaneAsleep, Mark: MarkOlderAsleep, Live: int64(t.OlderAsleep),
				Process: t.Process, Device: t.Device, UUID: GPUUUID(s, t.Process, t.Device, ledger.Tensor),
			})
		}
	}
	return list
}

// AsleepText returns "58.1 GiB of tensors are asleep: PyTorch counts them, but their memory was
// unmapped", or "" if none are. For tensors older than the attach the figure is a lower bound.
func AsleepText(s *ledger.Snapshot) string {
	sum := AsleepBytes(s)
	if sum == 0 {
		return ""
	}
	least := ""
	if len(olderAsleep(s)) > 0 {
		least = "at least "
	}
	return least + format.Bytes(sum) + " of tensors are asleep: PyTorch counts them, but their memory was unmapped"
}

// AsleepSites returns the sites with tensors asleep, those with most bytes first.
func AsleepSites(s *ledger.Snapshot) (list []*ledger.Site) {
	for i := range s.Sites {
		if x := &s.Sites[i]; x.Asleep > 0 {
			list = append(list, x)
		}
	}
	slices.SortStableFunc(list, func(a, b *ledger.Site) int { return cmp.Compare(b.Asleep, a.Asleep) })
	return list
}

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
