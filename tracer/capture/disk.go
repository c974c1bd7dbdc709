// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"errors"
	"fmt"
	"os"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/proto"

	"github.com/vramprof/vramprof/tracer/capture/internal/wire"
)

// File is the destination of a capture: an *os.File.
type File interface {
	WriteAt(b []byte, offset int64) (int, error)
	Truncate(size int64) error
}

// disk writes frames.
type disk struct {
	file     File
	offset   int64 // end of the last whole frame
	sequence uint32
	last     uint64 // of the last whole frame
	events   uint64 // in whole frames
	zstd     *zstd.Encoder
	message  []byte
	frame    []byte
}

func newDisk(file File, h *wire.Head) (*disk, error) {
	text, err := head(h)
	if err != nil {
		return nil, err
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithEncoderCRC(false), zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, err
	}
	d := &disk{file: file, zstd: encoder, last: h.Time}
	return d, d.append(text)
}

// append writes at the end. If the write is incomplete, append truncates the file; if that fails
// too, readers skip the partial frame.
func (d *disk) append(b []byte) error {
	if _, err := d.file.WriteAt(b, d.offset); err != nil {
		_ = d.file.Truncate(d.offset)
		var path *os.PathError
		if errors.As(err, &path) {
			err = path.Err // the caller knows the name of the file
		}
		return err
	}
	d.offset += int64(len(b))
	return nil
}

func (d *disk) write(f frame, m proto.Message) (err error) {
	d.message = d.message[:0]
	if m != nil {
		if d.message, err = (proto.MarshalOptions{}).MarshalAppend(d.message, m); err != nil {
			return err
		}
		if len(d.message) > maxPayload {
			return fmt.Errorf("a frame of %d bytes is too large", len(d.message))
		}
	}
	f.size = uint32(len(d.message))
	d.frame = append(d.frame[:0], make([]byte, frameHeader)...)
	if f.size > 0 {
		d.frame = d.zstd.EncodeAll(d.message, d.frame)
	}
	payload := d.frame[frameHeader:]
	f.sequence, f.length, f.sum = d.sequence, uint32(len(payload)), checksum(payload)
	f.put(d.frame)
	if err := d.append(d.frame); err != nil {
		return err
	}
	d.sequence++
	d.last = max(d.last, f.last)
	return nil
}

// batch writes events and other inputs, and requests the names of new stacks.
func (d *disk) batch(b *batch, n *names) error {
	f := frame{kind: inputsFrame, events: b.inputs.Events, first: b.first, last: b.last}
	if b.gap {
		f.kind, f.events = gapFrame, uint32(b.lost)
		return d.write(f, nil)
	}
	if b.opened {
		f.kind = openedFrame
		return d.write(f, nil)
	}
	if b.checkpoint != nil {
		return d.checkpoint(b)
	}
	if err := d.write(f, &b.inputs); err != nil {
		return err
	}
	d.events += uint64(b.inputs.Events)
	n.want(b.inputs.StackId)
	for _, in := range b.inputs.Input {
		n.want(in.GetCarried().GetStack())
	}
	return nil
}

// checkpoint writes the frames of a checkpoint. Each counts those that follow it.
func (d *disk) checkpoint(b *batch) error {
	for i, m := range b.checkpoint {
		f := frame{kind: checkpointFrame, events: uint32(len(b.checkpoint) - 1 - i), first: b.first, last: b.last}
		if err := d.write(f, m); err != nil {
			return err
		}
	}
	return nil
}

func (d *disk) stacks(m *wire.Stacks) error {
	return d.write(frame{kind: stacksFrame, first: d.last, last: d.last}, m)
}

func (d *disk) end(m *wire.End) error {
	at := max(d.last, m.Time)
	return d.write(frame{kind: endFrame, first: at, last: at}, m)
}

// batchBytes is how much a batch has at most of inputs other than events, but for the last input.
const batchBytes = 1 << 20

// batch is the content of one frame.
type batch struct {
	inputs      wire.Inputs
	size        int  // of inputs other than events
	gap         bool // replaces dropped inputs
	opened      bool // the mark after an opening
	lost        int  // events in a gap
	checkpoint  []*wire.Inputs
	first, last uint64
}

func (b *batch) empty() bool { return b.inputs.Events == 0 && len(b.inputs.Input) == 0 }

func (b *batch) clear() {
	truncate(&b.inputs)
	b.size, b.first, b.last = 0, 0, 0
}
