// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// Rank is what a process of a job that has ended held at its peak, in bytes.
type Rank struct {
	*ledger.Peak
	Process *ledger.Process
	Tensors int64 // at the peak
	Cache   int64 // idle: reserved by PyTorch, and in no tensor
	Other   int64 // the rest of its GPU memory
}

// Ranks returns the processes of a job that have ended, by rank; those without one come last.
func Ranks(s *ledger.Snapshot) []Rank {
	var list []Rank
	for i := range s.Peaks {
		x := Rank{Peak: &s.Peaks[i], Process: &s.Processes[s.Peaks[i].Process]}
		for _, h := range Holdings(x.Books) {
			switch {
			case h.Apart():
			case h.Plane == PlaneTensor:
				x.Tensors += h.Live
			case h.Plane == PlaneCache:
				x.Cache += h.Live
			default:
				x.Other += h.Live
			}
		}
		list = append(list, x)
	}
	slices.SortStableFunc(list, func(a, b Rank) int {
		return cmp.Or(cmp.Compare(a.order(), b.order()), cmp.Compare(a.Process.PID, b.Process.PID))
	})
	return list
}

func (x *Rank) order() uint64 {
	n, err := strconv.ParseUint(x.Process.Rank, 10, 32)
	if err != nil {
		return 1 << 32
	}
	return n
}

// Name returns "rank 3 of 8", or "" without a rank.
func (x *Rank) Name() string {
	text := WorkloadText(ledger.Workload{Rank: x.Process.Rank, LocalRank: x.Process.LocalRank, WorldSize: x.Process.WorldSize})
	return strings.Join(text, "")
}
