// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// program is a simulated one: it allocates and frees in a ledger. Time is in steps.
type program struct {
	l        *ledger.Ledger
	rng      *rand.Rand
	scale    float64 // ns per step
	begin    uint64
	time     float64
	next     uint64 // address
	kind     ledger.Kind
	one      float64 // of how many tensors one is in the sample; 0: all
	halvings uint8   // of that rate
	size     map[uint64]uint64
	in       map[uint64]bool // the sample
	class    []ledger.ClassTotals
}

const start = 5e9 // of the session

func newProgram(scale float64, seed uint64) *program {
	return &program{
		l: ledger.New(ledger.Options{Begin: start}), rng: rand.New(rand.NewPCG(seed, 7)), scale: scale, begin: start + 1e6,
		kind: ledger.Device, size: map[uint64]uint64{}, in: map[uint64]bool{}, class: make([]ledger.ClassTotals, ledger.SizeClasses),
	}
}

func (p *program) now() uint64 { return p.begin + uint64(p.time*p.scale) }

// alloc takes memory at a line.
func (p *program) alloc(line, size uint64) uint64 {
	p.next += 1 << 30
	a := p.next
	e := ledger.Event{Op: ledger.Alloc, Kind: p.kind, PID: 7, TID: 7, Time: p.now(), Address: a, Size: size, Stack: line, API: "cudaMalloc"}
	p.size[a], p.in[a] = size, true
	if p.kind == ledger.Tensor {
		e.Space, e.API = ledger.Blocks, "torch"
		c := &p.class[ledger.SizeClass(size)]
		c.Allocs++
		c.AllocBytes += size
		p.in[a] = (p.one == 0 || p.rng.Float64() < -math.Expm1(-float64(size)/p.one)) && (p.halvings == 0 || p.rng.Uint64N(1<<p.halvings) == 0)
		e.Halvings = p.halvings
	}
	if p.in[a] {
		p.l.Apply(&e)
	}
	return a
}

func (p *program) free(a uint64) {
	e := ledger.Event{Op: ledger.Free, Kind: p.kind, PID: 7, TID: 7, Time: p.now(), Address: a}
	if p.kind == ledger.Tensor {
		e.Space = ledger.Blocks
		c := &p.class[ledger.SizeClass(p.size[a])]
		c.Frees++
		c.FreeBytes += p.size[a]
	}
	if p.in[a] {
		p.l.Apply(&e)
	}
}

// use takes memory for a part of a step.
func (p *program) use(line, size uint64) {
	a := p.alloc(line, size)
	p.time += 0.1
	p.free(a)
}

// train goes through so many steps.
func (p *program) train(steps int, step func(i int)) {
	from := p.time
	for i := range steps {
		p.time = max(p.time, from+float64(i))
		step(i)
	}
	p.time = max(p.time, from+float64(steps))
}

func (p *program) snapshot() *ledger.Snapshot {
	if p.kind == ledger.Tensor {
		var live uint64
		sampling := make([]float64, ledger.SizeClasses)
		for i := range p.class {
			live += p.class[i].AllocBytes - p.class[i].FreeBytes
			sampling[i] = 1
		}
		p.l.Tell(ledger.Sampling(sampling))
		p.l.Tell(ledger.TensorReading{Time: p.now(), Totals: []ledger.TensorTotals{{PID: 7, Device: 0, Reported: p.now(), Allocated: live, Reserved: live, Classes: p.class}}})
	}
	return p.l.Snapshot(p.now(), time.Time{})
}

// lines names stack N "line N", in the user's own code.
type lines struct{}

func (lines) Stack(id uint64) []callstack.Frame {
	return []callstack.Frame{
		{Function: "cudaMalloc", Mapping: &callstack.Mapping{Path: "/usr/lib/libcudart.so.12"}},
		{Function: fmt.Sprint("line", id), File: "/home/u/train.py", Line: int(id), Python: true},
	}
}

// of returns the verdict on the memory of one line.
func of(s *ledger.Snapshot, line uint64) Verdict {
	for i, v := range Judge(s, lines{}) {
		if s.Sites[i].Stack == line {
			return v
		}
	}
	return Verdict{}
}

// fifo keeps the last ones.
type fifo struct {
	p     *program
	line  uint64
	depth int
	list  []uint64
}

func (f *fifo) put(size uint64) {
	f.list = append(f.list, f.p.alloc(f.line, size))
	if len(f.list) > f.depth {
		f.p.free(f.list[0])
		f.list = f.list[1:]
	}
}

// end is the end of the process.
func (p *program) end() {
	p.l.Apply(&ledger.Event{Op: ledger.Exit, PID: 7, TID: 7, Time: p.now()})
}

// lru is a cache by keys.
type lru struct {
	p     *program
	size  int
	bytes uint64
	order []int // last used last
	at    map[int]uint64
}

func newLRU(p *program, size int) *lru {
	return &lru{p: p, size: size, bytes: batch, at: map[int]uint64{}}
}

func (c *lru) get(key int) {
	if _, hit := c.at[key]; hit {
		c.order = slices.DeleteFunc(c.order, func(k int) bool { return k == key })
	} else {
		if len(c.order) == c.size {
			c.p.free(c.at[c.order[0]])
			delete(c.at, c.order[0])
			c.order = c.order[1:]
		}
		c.at[key] = c.p.alloc(1, c.bytes)
	}
	c.order = append(c.order, key)
}
