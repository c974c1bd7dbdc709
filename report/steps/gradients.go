// SPDX-License-Identifier: Apache-2.0

package steps

// gradients follows what backward passes allocated and left. Frees have no stack, so gradients
// show by how long they live: those of the last layers from the first half of the pass to beyond
// its end.
type gradients struct {
	live    uint64 // what backward passes allocated
	level   uint64 // live after the last pass; 0: cleared
	base    uint64 // live when they were cleared last: what else is kept, such as graphs
	inPass  bool
	count   uint32  // allocations of the pass
	freed   []block // since its last allocation
	cleared bool    // at a time that is no end of a step yet
}

const maxFreed = 1 << 16

func (g *gradients) begin() {
	g.inPass, g.count, g.freed, g.cleared = true, 0, g.freed[:0], false
}

// allocated counts an allocation of a pass, and returns how many there were before.
func (g *gradients) allocated() uint32 {
	g.freed = g.freed[:0]
	g.count++
	return g.count - 1
}

// free reports whether gradients are cleared by a free after the pass.
func (g *gradients) free(b block) bool {
	g.live -= min(g.live, b.size)
	if g.inPass {
		if len(g.freed) < maxFreed {
			g.freed = append(g.freed, b)
		}
		return false
	}
	return g.fell()
}

// fell reports whether nearly all is gone that was there after the pass.
func (g *gradients) fell() bool {
	if g.level <= g.base || g.live > g.base+(g.level-g.base)/8 {
		return false
	}
	g.level, g.base = 0, g.live
	return true
}

// end ends a pass, and reports whether its gradients are cleared already: between its last
// allocation and the next of the program.
func (g *gradients) end() bool {
	g.inPass = false
	g.level = g.live
	for _, b := range g.freed {
		if b.born < g.count/2 {
			g.level += b.size
		}
	}
	g.freed = g.freed[:0]
	return g.fell()
}
