// SPDX-License-Identifier: Apache-2.0

package report

import (
	"github.com/vramprof/vramprof/report/words"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Amount of live memory.
type Amount struct{ Bytes, Objects, Sites uint64 }

func (a *Amount) add(x *ledger.Site) {
	a.Bytes += Awake(x)
	a.Objects += AwakeObjects(x)
	a.Sites++
}

func (a *Amount) Text() string {
	return words.Count(a.Objects, "allocation") + ", " + words.Bytes(a.Bytes)
}

// Sums of sites: own has host, managed and ended in it, but neither imported nor cache.
type Sums struct{ Own, Host, Managed, Ended, Imported, Cache Amount }

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

// DivideLeaks divides sites as Leaks orders them: those of GPUs with those of imported memory behind them, those of managed
// memory, those of the host.
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
