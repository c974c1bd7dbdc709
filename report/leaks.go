// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// Leaks returns the sites that hold live memory, largest first: of GPU memory, then of imported,
// managed and host memory. With o.Older, the oldest allocation of a site must be known to be at
// least that old. Memory that a process did not free before it ended counts, with its age at the
// end. Segments of PyTorch's allocator do not count: a leak shows in the tensors that are allocated
// in them. Sites whose tensors are all asleep hold no memory and do not count. The sites are shared
// with the snapshot.
func Leaks(s *ledger.Snapshot, o Options) []ledger.Site {
	var list, imported, managed, host []ledger.Site
	reports := ReportTensors(s)
	for i := range s.Sites {
		x := &s.Sites[i]
		switch {
		case !holds(x, reports) || !isOlder(s, x, o.Older):
		case IsOnHost(x):
			host = append(host, *x)
		case IsApart(x):
			managed = append(managed, *x)
		case InSums(x.Kind):
			list = append(list, *x)
		default:
			imported = append(imported, *x)
		}
	}
	if AsleepBytes(s) > 0 {
		slices.SortStableFunc(list, func(a, b ledger.Site) int { return cmp.Compare(Awake(&b), Awake(&a)) })
	}
	return slices.Concat(list, imported, managed, host)
}

// holds reports whether a site holds live memory that could be a leak.
func holds(x *ledger.Site, reports []bool) bool {
	return x.LiveObjects > 0 && (x.Asleep == 0 || Awake(x) > 0) && planeOf(x, reports) != PlaneCache
}

// Age returns the age of the oldest live allocation in ns, at the end of its process or of the
// session. It is unknown if no live allocation of the site was sampled.
func Age(s *ledger.Snapshot, x *ledger.Site) (ns uint64, known bool) {
	if x.Oldest == 0 {
		return 0, false
	}
	return Minus(cmp.Or(s.Processes[x.Process].End, s.End), x.Oldest), true
}

func isOlder(s *ledger.Snapshot, x *ledger.Site, older time.Duration) bool {
	ns, known := Age(s, x)
	return older <= 0 || known && ns >= uint64(older)
}

// Ageless returns the GPU memory that o.Older excludes because its age is unknown.
func Ageless(s *ledger.Snapshot, o Options) (sum Amount) {
	reports := ReportTensors(s)
	for i := range s.Sites {
		x := &s.Sites[i]
		if _, known := Age(s, x); o.Older > 0 && !known && holds(x, reports) && InSums(x.Kind) && !IsOnHost(x) && !IsApart(x) {
			sum.add(x)
		}
	}
	return sum
}

// PerMinute scales a growth in ns nanoseconds to one minute, 0 if ns is 0.
func PerMinute(growth int64, ns uint64) int64 {
	if ns == 0 {
		return 0
	}
	return int64(float64(growth) * float64(time.Minute) / float64(ns))
}
