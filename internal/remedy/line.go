// SPDX-License-Identifier: Apache-2.0

package remedy

import (
	"errors"

	"github.com/vramprof/vramprof/internal/allocsim"
)

// Without returns the program in which a line keeps nothing on the GPU: each execution's memory is
// freed when its statement ends, because its result is dropped or moved to the host. A line keeps
// what is live when it runs the next time but one; a line that ran once, all that outlives its
// statement.
func (p *Program) Without(line Line) (*Program, Evidence, error) {
	k := p.keptBy(line)
	seen := Evidence{Count: len(k.calls), Bytes: k.bytes}
	if len(k.calls) == 0 {
		return nil, seen, errors.New("it allocates nothing that was recorded")
	}
	if k.bytes == 0 {
		return nil, seen, errors.New("it keeps nothing: what it allocates is freed before it runs again")
	}
	e := p.edit()
	needed := true
	for _, c := range k.calls {
		for _, b := range c.blocks {
			if k.keeps(p, c, b) {
				e.free(b, c.end)
				needed = needed && p.forBackward(b)
			}
		}
	}
	if needed {
		return nil, seen, errors.New("the backward pass needs all that it keeps: --offload keeps that on the host, --checkpoint computes it again")
	}
	return e.done(), seen, nil
}

// kept is what a line keeps.
type kept struct {
	calls    []call
	sites    map[uint32]bool // of which it keeps what outlives the statement
	bytes    uint64
	outlives uint64 // bytes that outlive their statement, kept or not
}

func (k *kept) keeps(p *Program, c call, b uint32) bool {
	return k.sites[p.Trace.Blocks[b].Site] && p.until(b) > c.end && !p.site(b).workspace
}

func (p *Program) keptBy(line Line) kept {
	k := kept{calls: p.executions(line)}
	k.sites = p.keeping(k.calls)
	if each := p.repeats(k.calls); len(k.calls) < 3 || len(k.sites) == 0 {
		k.calls = each
		k.sites = p.keeping(each)
	}
	for _, c := range k.calls {
		for _, b := range c.blocks {
			if p.until(b) > c.end && !p.site(b).workspace {
				k.outlives += p.size(b)
			}
			if k.keeps(p, c, b) {
				k.bytes += p.size(b)
			}
		}
	}
	return k
}

// call is an execution of a line or a function: what it allocates.
type call struct {
	begin, end int // its first Malloc; the first one after it
	blocks     []uint32
}

// executions finds the executions of a line: allocations below it that follow each other. Other
// threads, such as those of a backward pass, run beside it.
func (p *Program) executions(line Line) []call {
	below, roots := map[uint32]bool{}, map[string]bool{"": true}
	for n, s := range p.sites {
		if below[n] = line.in(s.stack); below[n] {
			roots[s.root] = true
		}
	}
	var calls []call
	open := false
	for i, op := range p.Trace.Ops {
		if op.Kind != allocsim.Malloc {
			continue
		}
		if s := p.site(op.Block); s.backward && s.line.Function == "" || !roots[s.root] {
			continue
		}
		if !below[p.Trace.Blocks[op.Block].Site] {
			if open {
				calls[len(calls)-1].end = i
			}
			open = false
			continue
		}
		if !open {
			calls = append(calls, call{begin: i, end: len(p.Trace.Ops)})
			open = true
		}
		c := &calls[len(calls)-1]
		c.blocks = append(c.blocks, op.Block)
	}
	return calls
}

// repeats divides executions that follow each other without an allocation elsewhere, as those of a
// loop that has only this line: where the stack traces repeat, each repetition is an execution.
func (p *Program) repeats(calls []call) (each []call) {
	for _, c := range calls {
		sites := make([]uint32, len(c.blocks))
		for i, b := range c.blocks {
			sites[i] = p.Trace.Blocks[b].Site
		}
		n := period(sites)
		for i := 0; i < len(c.blocks); i += n {
			part := call{p.lives[c.blocks[i]].Malloc, c.end, c.blocks[i : i+n]}
			if i+n < len(c.blocks) {
				part.end = p.lives[c.blocks[i+n]].Malloc
			}
			each = append(each, part)
		}
	}
	return each
}

// period returns the length of the shortest list that a list repeats.
func period(list []uint32) int {
	border := make([]int, len(list)) // of each beginning: its longest part that is its end as well
	for i := 1; i < len(list); i++ {
		k := border[i-1]
		for k > 0 && list[i] != list[k] {
			k = border[k-1]
		}
		if list[i] == list[k] {
			k++
		}
		border[i] = k
	}
	if n := len(list) - border[max(0, len(list)-1)]; len(list)%n == 0 {
		return n
	}
	return len(list)
}

// keeping returns the sites of which most blocks outlive the next execution but one.
func (p *Program) keeping(calls []call) map[uint32]bool {
	type votes struct{ kept, freed int }
	count := map[uint32]votes{}
	for n, c := range calls {
		next := c.end
		if len(calls) > 1 {
			if n+2 >= len(calls) {
				break // nothing tells
			}
			next = calls[n+2].begin
		}
		for _, b := range c.blocks {
			v := count[p.Trace.Blocks[b].Site]
			if p.until(b) > next {
				v.kept++
			} else if p.until(b) > c.end {
				v.freed++
			}
			count[p.Trace.Blocks[b].Site] = v
		}
	}
	if len(calls) == 2 { // of the first, what outlives the second one's statement
		for _, b := range calls[0].blocks {
			if p.until(b) > calls[1].end {
				count[p.Trace.Blocks[b].Site] = votes{kept: 1}
			}
		}
	}
	keeps := map[uint32]bool{}
	for s, v := range count {
		if v.kept > v.freed {
			keeps[s] = true
		}
	}
	return keeps
}
