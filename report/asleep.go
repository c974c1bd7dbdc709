// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"slices"

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
