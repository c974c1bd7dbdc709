// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"errors"
	"fmt"
	"io"
	"slices"
)

// scan finds the whole frames of a file.
type scan struct {
	r        *Reader
	size     int64
	offset   int64
	sequence uint32 // expected in the next frame
	last     uint64 // up to here nothing is missing
	lost     bool   // something after last is missing
	buffer   []byte

	unpacked, events uint64 // totals of the frames so far
}

func (s *scan) all() error {
	var header [frameHeader]byte
	for s.offset+frameHeader <= s.size {
		if err := s.read(header[:], s.offset); err != nil {
			return err
		}
		f, ok := parseFrame(header[:])
		if !ok || s.offset+frameHeader+int64(f.length) > s.size || f.sequence < s.sequence {
			s.lost = true
			found, err := s.search()
			if err != nil {
				return err
			}
			if !found {
				break
			}
			continue
		}
		if err := s.take(f); err != nil {
			return err
		}
		if err := s.bounded(); err != nil {
			return err
		}
	}
	s.r.last = s.last
	return nil
}

// take records a frame whose header is intact.
func (s *scan) take(f frame) error {
	payload := s.offset + frameHeader
	s.buffer = slices.Grow(s.buffer[:0], int(f.length))[:f.length]
	if err := s.read(s.buffer, payload); err != nil {
		return err
	}
	s.offset = payload + int64(f.length)
	if s.lost || f.sequence != s.sequence {
		s.r.missing.add(missing{first: s.last, last: max(s.last, f.first), damaged: true})
		s.lost = false
	}
	s.sequence = f.sequence + 1
	s.last = max(s.last, f.last)
	switch {
	case checksum(s.buffer) != f.sum && f.kind == checkpointFrame:
		s.r.checkpoints.part.frames = nil // nothing else is missing
	case checksum(s.buffer) != f.sum:
		s.r.missing.add(missing{first: f.first, last: f.last, damaged: true, stacks: f.kind == stacksFrame})
	case f.kind == gapFrame:
		s.r.missing.add(missing{first: f.first, last: f.last, events: uint64(f.events)})
	case f.kind == openedFrame:
		s.r.opened = f.last
	default:
		s.r.frames = append(s.r.frames, indexed{f, payload})
		if s.r.missing.none() {
			s.r.checkpoints.take(&f, len(s.r.frames)-1, s.last)
		}
		if s.unpacked += uint64(f.size); f.kind == inputsFrame {
			s.events += uint64(f.events)
		}
	}
	return nil
}

// bounded returns an error for more than a real capture contains.
func (s *scan) bounded() error {
	o := &s.r.options
	if o.Progress != nil && len(s.r.frames)%64 == 0 {
		o.Progress(s.offset, s.size)
	}
	switch {
	case len(s.r.frames) > maxFrames:
		return fmt.Errorf("it has more than %d frames", maxFrames)
	case o.Unlimited:
	case s.unpacked > unpackedLimit.of(s.size):
		return unpackedLimit.exceeded(s.size)
	case s.events > eventLimit.of(s.size):
		return eventLimit.exceeded(s.size)
	}
	return nil
}

func (s *scan) read(b []byte, at int64) error {
	if _, err := s.r.file.ReadAt(b, at); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// search moves to the next possible frame.
func (s *scan) search() (found bool, err error) {
	chunk := make([]byte, 64<<10)
	var b []byte // of the chunk, starting at at
	for at := s.offset + 1; at+frameHeader <= s.size; {
		if len(b) < frameHeader {
			b = chunk[:min(int64(len(chunk)), s.size-at)]
			if err := s.read(b, at); err != nil {
				return false, err
			}
		}
		i := nextMarker(b[:len(b)-frameHeader+len(marker)])
		if i < 0 {
			i = len(b) - frameHeader + 1
			at, b = at+int64(i), b[i:]
			continue
		}
		at, b = at+int64(i), b[i:]
		if f, ok := parseFrame(b[:frameHeader]); ok && f.sequence >= s.sequence && at+frameHeader+int64(f.length) <= s.size {
			s.offset = at
			return true, nil
		}
		at, b = at+1, b[1:]
	}
	return false, nil
}
