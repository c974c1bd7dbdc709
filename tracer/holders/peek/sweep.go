// SPDX-License-Identifier: Apache-2.0

package peek

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

const sweepPiece = 1 << 20

// Whole reports whether all that the process had in memory was copied.
func (c *Copy) Whole() bool {
	_, image := c.mem.(*Image)
	return c.whole || image
}

// Sweep visits all resident memory that is the process's own, copied or not. What was copied it
// skips once it is late.
func (c *Copy) Sweep(ctx context.Context, late func() bool, look func(base uint64, p []byte)) error {
	if p, is := c.mem.(*Process); is && !c.whole {
		return p.sweep(ctx, look)
	}
	if m, is := c.mem.(*Image); is {
		for _, number := range slices.Sorted(maps.Keys(m.Pages)) {
			look(number<<PageShift, m.Pages[number][:])
		}
		return nil
	}
	c.EachPage(func(number uint64, p *Page) {
		if number%chunkPages != 0 || !late() {
			look(number<<PageShift, p[:])
		}
	})
	return nil
}

// sweep reads what was not copied, since it is more than the limit.
func (p *Process) sweep(ctx context.Context, look func(base uint64, p []byte)) error {
	spans, _ := p.residentSpans()
	piece := make([]byte, sweepPiece)
	for _, s := range spans {
		for at := s.Start; at < s.End; at += sweepPiece {
			if ctx.Err() != nil {
				return fmt.Errorf("search the memory of process %d: %w", p.pid, context.Cause(ctx))
			}
			to := piece[:min(sweepPiece, s.End-at)]
			n, _ := readv(p.pid, to, []Span{{at, at + uint64(len(to))}})
			look(at, to[:max(n, 0)&^7])
		}
	}
	return p.alive()
}
