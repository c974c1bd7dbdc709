// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/vramprof/vramprof/tracer/capture/internal/wire"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Player gives the inputs of a capture to books, step by step. It is not safe for concurrent use.
type Player struct {
	rec     *Reader
	next    int // frame
	active  bool
	inputs  wire.Inputs // of the current frame
	input   int         // index of the next one in inputs.Input
	events  eventDecoder
	event   ledger.Event  // read last
	ahead   bool          // event has not been told yet
	early   []*wire.Input // inputs read before older events and not told yet
	applier applier
	buffers buffers
	time    uint64 // of the input that books are told
}

// Player returns a Player at the beginning of the capture.
func (r *Reader) Player() *Player { return &Player{rec: r} }

// eventLag is how much older than a preceding input an event may be, in ns: events wait in the
// kernel's ring.
const eventLag = uint64(time.Second)

// PlayTo continues where the last call stopped and gives books all inputs up to time, in order. It
// stops at the first event after time. An event that waited while other threads' younger events
// arrived counts at the time of the youngest of them. Damaged frames are skipped; see
// Reader.Warnings. An error means that the file could not be read.
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

// tellEarly gives books the inputs that the last call skipped.
func (p *Player) tellEarly(time uint64, books ledger.Books) {
	for len(p.early) > 0 && p.early[0].GetTime() <= time {
		p.apply(p.early[0], books)
		p.early = p.early[1:]
	}
}

// load moves to the next frame with inputs. It returns false at the end, or if the frame begins
// after time.
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
		if !isDamage(err) {
			return false, err
		}
		p.rec.missing.add(missing{first: f.first, last: f.last, damaged: true})
	}
	return false, nil
}

// isDamage reports whether an error is of the content of a frame, not of reading the file.
func isDamage(err error) bool { return errors.Is(err, errFrame) || errors.Is(err, errColumns) }

// play plays the current frame. It returns false if the frame has inputs after time left.
func (p *Player) play(time uint64, books ledger.Books) bool {
	for {
		stop := uint32(0) // events left when the next input comes
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
			if at-time > eventLag || in.GetCarried() != nil { // nothing goes before an opening
				return false
			}
			p.early = append(p.early, proto.CloneOf(in)) // the frame's memory is reused
			p.input++
			continue
		}
		p.input++
		p.apply(in, books)
	}
}

// Time returns when the input came that PlayTo is telling books, if it is not an event.
func (p *Player) Time() uint64 { return p.time }

// Err returns the limit that what was played has reached, as the next PlayTo does.
func (p *Player) Err() error { return p.rec.reached() }

// apply gives books one input.
func (p *Player) apply(in *wire.Input, books ledger.Books) {
	p.time = in.GetTime()
	switch err := p.applier.apply(in, books); {
	case errors.Is(err, errTooMany) && !p.rec.options.Unlimited:
		p.rec.Stop(err)
	case err != nil:
		p.damaged()
	}
}

// damaged records that the current frame is malformed.
func (p *Player) damaged() {
	f := &p.rec.frames[p.next-1]
	p.rec.missing.add(missing{first: f.first, last: f.last, damaged: true})
}

// restore gives empty books a checkpoint, and continues after it. It returns false if the
// checkpoint is malformed.
func (p *Player) restore(c *checkpoint, books *ledger.Ledger) (bool, error) {
	for _, i := range c.frames {
		if err := p.rec.load(&p.rec.frames[i], &p.inputs, &p.buffers); err != nil {
			if isDamage(err) {
				return false, nil
			}
			return false, err
		}
		for _, in := range p.inputs.Input {
			if err := p.applier.apply(in, books); err != nil {
				return false, nil
			}
		}
	}
	p.next = c.next
	return books.Restored(), p.rec.reached()
}
