// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/report/words"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Awake is what a site's live bytes have memory for.
func Awake(x *ledger.Site) uint64 { return Minus(x.LiveBytes, x.Asleep) }

// AwakeObjects is how many of a site's live objects may have memory. How many of them sleep is not known, unless all do.
func AwakeObjects(x *ledger.Site) uint64 {
	if x.Asleep > 0 && Awake(x) == 0 {
		return 0
	}
	return x.LiveObjects
}

// AsleepBytes is what is asleep in all processes, older than the attach or not.
func AsleepBytes(s *ledger.Snapshot) (sum uint64) {
	for i := range s.Tensors {
		sum += s.Tensors[i].Asleep + s.Tensors[i].OlderAsleep
	}
	return sum
}

// asleepHoldings are the shares of sites that are asleep.
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

// olderAsleep are those of what is older than the attach.
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

// AsleepText is "58.1 GiB of tensors are asleep: PyTorch counts them, but their memory was unmapped", "" without any. Of what is
// older than the attach it is the least that can be.
func AsleepText(s *ledger.Snapshot) string {
	sum := AsleepBytes(s)
	if sum == 0 {
		return ""
	}
	least := ""
	if len(olderAsleep(s)) > 0 {
		least = "at least "
	}
	return least + words.Bytes(sum) + " of tensors are asleep: PyTorch counts them, but their memory was unmapped"
}

// AsleepSites gives the sites that have tensors asleep, those with most first.
func AsleepSites(s *ledger.Snapshot) (list []*ledger.Site) {
	for i := range s.Sites {
		if x := &s.Sites[i]; x.Asleep > 0 {
			list = append(list, x)
		}
	}
	slices.SortStableFunc(list, func(a, b *ledger.Site) int { return cmp.Compare(b.Asleep, a.Asleep) })
	return list
}
