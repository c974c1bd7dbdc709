// SPDX-License-Identifier: Apache-2.0

package report

import (
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Amount is an amount of live memory.
type Amount struct{ Bytes, Objects, Sites uint64 }

func (a *Amount) add(x *ledger.Site) {
	a.Bytes += Awake(x)
	a.Objects += AwakeObjects(x)
	a.Sites++
}

// Text returns "12 allocations, 3.00 GiB".
func (a *Amount) Text() string {
	return format.Count(a.Objects, "allocation") + ", " + format.Bytes(a.Bytes)
}

// Sums are amounts of sites. Own includes Host, Managed and Ended, but neither Imported nor Cache.
type Sums struct{ Own, Host, Managed, Ended, Imported, Cache Amount }

// Sum adds up sites.
func Sum(s *ledger.Snapshot, list []ledger.Site) Sums {
	reports := ReportTensors(s)
	var sum Sums
	for i := range list {
		x := &list[i]
		switch {
		case x.LiveObjects == 0:
		case planeOf(x, reports) == PlaneCache:
			sum.Cache.add(x)
			sum.Cache.Bytes -= min(x.Tensors, x.LiveBytes)
		case !InSums(x.Kind):
			sum.Imported.add(x)
		default:
			sum.Own.add(x)
			switch {
			case IsOnHost(x):
				sum.Host.add(x)
			case IsApart(x):
				sum.Managed.add(x)
			}
			if s.Processes[x.Process].End != 0 {
				sum.Ended.add(x)
			}
		}
	}
	return sum
}

// DivideLeaks divides the result of Leaks into sites of GPU and imported memory, of managed memory,
// and of host memory.
func DivideLeaks(list []ledger.Site) (gpu, managed, host []ledger.Site) {
	n := len(list)
	for n > 0 && IsOnHost(&list[n-1]) {
		n--
	}
	m := n
	for m > 0 && IsApart(&list[m-1]) {
		m--
	}
	return list[:m], list[m:n], list[n:]
}

// Magnitude returns the absolute value of n.
func Magnitude(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

// Minus returns a - b, or 0 if b is larger.
func Minus(a, b uint64) uint64 {
	if a < b {
		return 0
	}
	return a - b
}
