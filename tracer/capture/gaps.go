// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"fmt"
	"slices"
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

// miss records that a part is missing.
func (r *Reader) miss(m missing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.missing {
		if x := &r.missing[i]; x.damaged == m.damaged && x.stacks == m.stacks && m.first <= x.last && x.first <= m.last {
			x.first, x.last = min(x.first, m.first), max(x.last, m.last)
			if !m.damaged {
				x.events += m.events
			}
			return
		}
	}
	if len(r.missing) < maxMissing {
		r.missing = append(r.missing, m)
	}
}

// Warnings lists what is missing in the part of the capture that has been read.
func (r *Reader) Warnings() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []string
	sorted := slices.Clone(r.missing)
	slices.SortFunc(sorted, func(a, b missing) int {
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.last, b.last), cmp.Compare(a.events, b.events))
	})
	for i, m := range sorted {
		if i == maxListed {
			list = append(list, fmt.Sprintf("more places where the capture is incomplete: %d", len(sorted)-i))
			break
		}
		span := fmt.Sprintf("from %s to %s", since(r.begin, m.first), since(r.begin, m.last))
		switch {
		case m.stacks:
			list = append(list, "the capture is damaged: names of stacks written at "+since(r.begin, m.last)+" are missing")
		case m.damaged:
			list = append(list, "the capture is damaged: inputs "+span+" are missing")
		default:
			list = append(list, fmt.Sprintf("the capture lacks inputs %s, including %d events: the disk was too slow", span, m.events))
		}
	}
	if r.end == nil {
		list = append(list, "the capture is incomplete (still being written, or vramprof was killed): it ends at "+since(r.begin, max(r.last, r.begin)))
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
