// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/vramprof/vramprof/tracer/capture/internal/wire"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Player tells books what a recording has, step by step. It must be used from one goroutine at a time.
type Player struct {
	rec     *Reader
	next    int // frame
	active  bool
	inputs  wire.Inputs // of the current frame
	input   int         // the next of inputs.Input
	events  eventDecoder
	event   ledger.Event  // that was read last
	ahead   bool          // and not told yet
	early   []*wire.Input // that came before events which are older than they are, and are still to be told
	applier applier
	buffers buffers
}

// Player returns one that stands at the beginning.
func (r *Reader) Player() *Player { return &Player{rec: r} }

// eventLag is how much older an event may be than an input before it, in ns: events lie in the kernel's ring for a while.
const eventLag = uint64(time.Second)

// PlayTo goes on from where the last call stopped, to the first event that came after time, and tells what came by then in its order. An
// event that was on its way while younger ones of other threads came counts as of the youngest of them.
// Damaged frames are left out; see Recording.Warnings. An error is one of reading the file.
func (p *Player) PlayTo(time uint64, books ledger.Books) error {
	if p.rec.options.Progress != nil {
		defer p.rec.options.Progress(p.rec.size, p.rec.size)
	}
	p.tellEarly(time, books)
	for {
		if err := p.rec.reached(); err != nil {
			return err
		}
		if !p.active {
			more, err := p.load(time)
			if err != nil || !more {
				return err
			}
		}
		if !p.play(time, books) {
			return p.rec.reached()
		}
		p.active = false
	}
}

// tellEarly tells the inputs that the last call passed over.
func (p *Player) tellEarly(time uint64, books ledger.Books) {
	for len(p.early) > 0 && p.early[0].GetTime() <= time {
		p.apply(p.early[0], books)
		p.early = p.early[1:]
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
		if p.rec.options.Progress != nil {
			p.rec.options.Progress(f.offset, p.rec.size)
		}
		if err == nil && p.inputs.Events != f.events {
			err = errColumns
		}
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
			if p.ahead = p.event.Time > time; p.ahead {
				return false
			}
			books.Apply(&p.event)
		}
		if p.input == len(p.inputs.Input) {
			return true
		}
		in := p.inputs.Input[p.input]
		if at := in.GetTime(); at > time {
			if at-time > eventLag {
				return false
			}
			p.early = append(p.early, proto.CloneOf(in)) // the frame's memory is used again
			p.input++
			continue
		}
		p.input++
		p.apply(in, books)
	}
}

// apply tells books one input.
func (p *Player) apply(in *wire.Input, books ledger.Books) {
	switch err := p.applier.apply(in, books); {
	case errors.Is(err, errTooMany) && !p.rec.options.Unlimited:
		p.rec.stop(err)
	case err != nil:
		p.damaged()
	}
}

// damaged notes that the current frame has something that cannot be.
func (p *Player) damaged() {
	f := &p.rec.frames[p.next-1]
	p.rec.miss(missing{first: f.first, last: f.last, damaged: true})
}
