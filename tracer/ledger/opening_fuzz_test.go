// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

// pieces keeps the inputs of an opening.
type pieces []Input

func (p *pieces) Apply(*Event)  {}
func (p *pieces) Tell(in Input) { *p = append(*p, in) }

// hostileOpening returns an opening of random books.
func hostileOpening(t *testing.T, seed uint64) (list pieces) {
	rng := rand.New(rand.NewPCG(seed, 1))
	data := make([]byte, 16*200)
	for i := range data {
		data[i] = byte(rng.Uint64())
	}
	l, last := applyHostile(t, data, nil)
	for i := range uint64(9) {
		l.Tell(GPUs{{UUID: "A", Used: i}, {UUID: "B", Used: 9 - i}})
		l.Tell(UsageReading{Time: last + i*2e9, Usages: []Usage{{PID: 1, UUID: "A", Bytes: i}}})
	}
	for pid := range uint32(2) {
		l.Tell(WalkOpened{pid, last})
		l.Tell(Walk{PID: pid, Time: last, Holders: []Holder{{Path: "a", Retention: retention.Known}, {Path: "b", Device: 1}}, Storages: []Storage{{Address: 3, Bytes: 9}, {Address: 4, Bytes: 512, Block: 512, Holder: 1}}})
	}
	l.Tell(WalkOpened{1, last})
	if seed%2 == 0 {
		l.Opening(&list)
	} else {
		l.Checkpoint(&list, math.MaxInt)
	}
	return list
}

// FuzzOpening changes bytes of openings, three bytes of the input for each: where, what, and how.
// Books that take such an opening, and what follows, stay within their bounds.
func FuzzOpening(f *testing.F) {
	rng := rand.New(rand.NewPCG(2, 3))
	for range 300 {
		data := make([]byte, 3*(1+rng.IntN(8))+16*20)
		for i := range data {
			data[i] = byte(rng.Uint64())
		}
		f.Add(rng.Uint64N(40), uint8(1+rng.IntN(8)), data)
	}
	f.Fuzz(func(t *testing.T, seed uint64, changes uint8, data []byte) {
		interrupts := int(changes) - 128 // after this piece, if there is one
		list := hostileOpening(t, seed%64)
		for ; changes > 0 && len(data) >= 3; changes, data = changes-1, data[3:] {
			damagePiece(list, data)
		}
		limits := 0
		l := New(Options{Limits: ReadLimits{Live: 1 << 12, Sites: 1 << 10, Processes: 64, Tensors: 64, Steps: 1 << 26, Reached: func(Limit) { limits++ }}})
		l.Observe(newWitness(t))
		for i, in := range list {
			if l.Tell(in); i == interrupts {
				stepHostile(l, slices.Concat(data, make([]byte, 16)))
			}
		}
		look := func() {
			s := l.Snapshot(l.newest+1, time.Time{})
			l.AddStuck(s)
			l.AddPeaks(s)
			s.Parts()
			opened(l)
			l.Checkpoint(New(Options{}), math.MaxInt)
		}
		look()
		for ; len(data) >= 16; data = data[16:] {
			stepHostile(l, data)
		}
		look()
		l.Apply(&Event{Op: Exit, PID: 99, Time: 1 << 62})
		look()
	})
}

// damagePiece changes a piece of an opening.
func damagePiece(list pieces, how []byte) {
	var at []int
	for i := range list {
		if _, ok := list[i].(Carried); ok {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return
	}
	i := at[int(how[0])%len(at)]
	x := list[i].(Carried)
	x.Data, x.Stacks = slices.Clone(x.Data), slices.Clone(x.Stacks)
	switch where := int(how[1]) * len(x.Data) / 256; {
	case len(x.Data) == 0:
	case how[2] < 32:
		x.Data = x.Data[:where]
	case how[2] < 64: // a large number
		x.Data = slices.Replace(x.Data, where, where+1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, how[2])
	case how[2] < 72:
		x.Piece += uint32(how[1])
	case how[2] < 80:
		x.Texts = nil
	default:
		x.Data[where] ^= how[2]
	}
	list[i] = x
}
