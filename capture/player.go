// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"errors"

	"github.com/vramprof/vramprof/capture/internal/wire"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Player tells books what a recording has, step by step. It must be used from one goroutine at a time.
type Player struct {
	rec     *Recording
	next    int // frame
	active  bool
	inputs  wire.Inputs // of the current frame
	input   int         // the next of inputs.Input
	events  eventDecoder
	event   ledger.Event // that was read last
	ahead   bool         // and not told yet
	applier applier
	clock   uint64 // highest time so far
	buffers buffers
}

// Player returns one that stands at the beginning.
func (r *Recording) Player() *Player { return &Player{rec: r} }

// To goes on from where the last call stopped, to the first input that came after time. What came
// before it is told in the order in which it came: an event that was on its way for some ms counts as of what came before it.
// Damaged frames are left out; see Recording.Warnings. An error is one of reading the file.
func (p *Player) To(time uint64, books ledger.Books) error {
	for {
		if !p.active {
			more, err := p.load(time)
			if err != nil || !more {
				return err
			}
		}
		if !p.play(time, books) {
			return nil
		}
		p.active = false
	}
}

// load goes to the next frame with inputs; false behind the last, or if it begins after time.
func (p *Player) load(time uint64) (bool, error) {
	for ; p.next < len(p.rec.frames); p.next++ {
		f := &p.rec.frames[p.next]
		if f.kind != inputsFrame {
			continue
		}
		if f.first > time {
			return false, nil
		}
		err := p.rec.load(f, &p.inputs, &p.buffers)
		if err == nil {
			err = p.events.begin(&p.inputs)
		}
		if err == nil {
			p.next++
			p.input, p.active = 0, true
			return true, nil
		}
		if !errors.Is(err, errFrame) && !errors.Is(err, errColumns) {
			return false, err
		}
		p.rec.miss(missing{first: f.first, last: f.last, damaged: true})
	}
	return false, nil
}

// play goes through the current frame; false if it has something left that came after time.
func (p *Player) play(time uint64, books ledger.Books) bool {
	for {
		stop := uint32(0) // events that are left when the next input comes
		if p.input < len(p.inputs.Input) {
			stop = p.inputs.Events - min(p.inputs.Events, p.inputs.Input[p.input].GetPosition())
		}
		for p.ahead || p.events.left > stop {
			if !p.ahead && p.events.read(&p.event) != nil {
				p.damaged()
				return true
			}
			p.clock = max(p.clock, p.event.Time)
			if p.ahead = p.clock > time; p.ahead {
				return false
			}
			books.Apply(&p.event)
		}
		if p.input == len(p.inputs.Input) {
			return true
		}
		in := p.inputs.Input[p.input]
		if p.clock = max(p.clock, in.GetTime()); p.clock > time {
			return false
		}
		p.input++
		if p.applier.apply(in, books) != nil {
			p.damaged()
		}
	}
}

// damaged notes that the current frame has something that cannot be.
func (p *Player) damaged() {
	f := &p.rec.frames[p.next-1]
	p.rec.miss(missing{first: f.first, last: f.last, damaged: true})
}
