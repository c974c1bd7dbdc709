// SPDX-License-Identifier: Apache-2.0

package peek

import (
	"maps"
	"math/bits"
	"slices"
)

// Fetch copies the pages of a running process that addresses lie in, in few system calls: reading
// them one by one takes three system calls each. It leaves out what the copy has, what is not
// resident, and what is beyond its limit.
func (c *Copy) Fetch(addresses []uint64) {
	p, is := c.mem.(*Process)
	if !is {
		return
	}
	m := residency{Process: p, runs: map[uint64]*run{}}
	var spans []Span
	for n, page := range pagesOf(addresses) {
		if n >= c.limit-c.count {
			break
		}
		switch k := len(spans) - 1; {
		case page >= AddressEnd || c.has(page) || !m.readable(page):
		case k >= 0 && spans[k].End == page:
			spans[k].End += PageSize
		default:
			spans = append(spans, Span{page, page + PageSize})
		}
	}
	for len(spans) > 0 {
		var batch []Span
		batch, spans = cut(spans)
		if c.take(p, batch) != nil {
			break
		}
	}
	if p.alive() != nil { // the pid may be another process's by now
		c.forget()
	}
}

// has reports whether a page was copied or tried.
// pagesOf returns the pages that addresses lie in, sorted, each once. There can be many addresses
// on a page.
func pagesOf(addresses []uint64) (pages []uint64) {
	type set [chunkPages / 64]uint64
	chunks := map[uint64]*set{}
	var key uint64
	var in *set
	for _, a := range addresses {
		if in == nil || a>>chunkShift != key {
			key = a >> chunkShift
			if in = chunks[key]; in == nil {
				in = new(set)
				chunks[key] = in
			}
		}
		page := a >> PageShift % chunkPages
		in[page/64] |= 1 << (page % 64)
	}
	for _, key := range slices.Sorted(maps.Keys(chunks)) {
		for k, word := range chunks[key] {
			for ; word != 0; word &= word - 1 {
				pages = append(pages, key<<chunkShift|uint64(64*k+bits.TrailingZeros64(word))<<PageShift)
			}
		}
	}
	return pages
}

func (c *Copy) has(page uint64) bool {
	ch := c.chunks[page>>chunkShift]
	return ch != nil && ch[page>>PageShift%chunkPages] != nil
}
