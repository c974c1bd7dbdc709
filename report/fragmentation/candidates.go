// SPDX-License-Identifier: Apache-2.0

package fragmentation

import "slices"

// candidates are the groups of lines that can be the next row: those that some segments wait for.
type candidates struct {
	list []candidate
	at   map[[maxTogether]int]int
}

type candidate struct {
	lines []int
	free  uint64
	sets  int // with free; 0: none any more
}

// change adds a set to its candidate, or takes it off. A set with blocks of too many lines is of
// none.
func (c *candidates) change(of *set, added bool) {
	if of.More > 0 || len(of.left) > maxTogether {
		return
	}
	key := [maxTogether]int{}
	for k, n := range of.left {
		key[k] = n + 1
	}
	n, ok := c.at[key]
	if !ok {
		n = len(c.list)
		c.at[key] = n
		c.list = append(c.list, candidate{lines: of.left})
	}
	x := &c.list[n]
	if added {
		x.free, x.sets = x.free+of.Free, x.sets+1
	} else {
		x.free, x.sets = x.free-of.Free, x.sets-1
	}
}

// best returns the lines that hold most per line, nil if there is no candidate.
func (c *candidates) best() (lines []int) {
	most := uint64(0)
	for i := range c.list {
		if x := &c.list[i]; x.sets > 0 {
			if share := x.free / uint64(len(x.lines)); lines == nil || share > most {
				lines, most = x.lines, share
			}
		}
	}
	return lines
}

// setsWith returns the indices of the sets with blocks of some lines, in order.
func (b *builder) setsWith(lines []int) (list []int) {
	for _, n := range lines {
		list = append(list, b.setsOf[n]...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}
