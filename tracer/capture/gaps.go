// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

// missing is a part that the capture lacks.
type missing struct {
	first, last uint64
	events      uint64 // dropped events
	damaged     bool
	stacks      bool // only names
}

// maxMissing bounds the recorded parts, maxListed the listed ones.
const (
	maxMissing = 1 << 12
	maxListed  = 8
)

// gaps collects the parts that a capture lacks. Any goroutine may call its methods.
type gaps struct {
	mu   sync.Mutex // guards list
	list []missing
}

// add records that a part is missing.
func (g *gaps) add(m missing) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.list {
		if x := &g.list[i]; x.damaged == m.damaged && x.stacks == m.stacks && m.first <= x.last && x.first <= m.last {
			x.first, x.last = min(x.first, m.first), max(x.last, m.last)
			if !m.damaged {
				x.events += m.events
			}
			return
		}
	}
	if len(g.list) < maxMissing {
		g.list = append(g.list, m)
	}
}

// none reports whether no part is missing so far.
func (g *gaps) none() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.list) == 0
}

// warnings lists the missing parts of a capture whose ledger began at a time, the first ones in
// words.
func (g *gaps) warnings(begin uint64) (list []string) {
	g.mu.Lock()
	sorted := slices.Clone(g.list)
	g.mu.Unlock()
	slices.SortFunc(sorted, func(a, b missing) int {
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.last, b.last), cmp.Compare(a.events, b.events))
	})
	for i, m := range sorted {
		if i == maxListed {
			list = append(list, fmt.Sprintf("more places where the capture is incomplete: %d", len(sorted)-i))
			break
		}
		span := fmt.Sprintf("from %s to %s", since(begin, m.first), since(begin, m.last))
		switch {
		case m.stacks:
			list = append(list, "the capture is damaged: names of stacks written at "+since(begin, m.last)+" are missing")
		case m.damaged:
			list = append(list, "the capture is damaged: inputs "+span+" are missing")
		default:
			list = append(list, fmt.Sprintf("the capture lacks inputs %s, including %d events: the disk was too slow", span, m.events))
		}
	}
	return list
}

// since formats a time relative to begin: "12m30s".
func since(begin, time uint64) string {
	if time < begin {
		return "0s"
	}
	return duration(time - begin)
}

// duration formats ns: "12m30s".
func duration(ns uint64) string {
	d := time.Duration(min(ns, 1<<62))
	if d < 10*time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}
