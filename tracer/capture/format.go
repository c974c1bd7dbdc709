// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"google.golang.org/protobuf/proto"

	"github.com/vramprof/vramprof/tracer/capture/internal/wire"
)

// The file starts with magic, the version, the length of a wire.Head, the Head, and the checksum of
// all that. Frames follow to the end: a frame header and a payload, which is a message of
// internal/wire compressed by zstd. All numbers are little-endian.
const (
	// Any conversion of line ends, or to 7 bits, corrupts magic.
	magic   = "\x89VRAM\r\n\x1a"
	version = 1

	fixedHead   = len(magic) + 8
	maxHead     = 64 << 10
	marker      = "\xf7vrm" // starts each frame, to find the next one after damage
	frameHeader = 48

	maxPayload = 8 << 20 // bytes of a frame's message
)

type frameKind uint8

const (
	inputsFrame frameKind = iota + 1
	stacksFrame
	endFrame
	gapFrame        // no payload: the writer dropped what belongs here
	openedFrame     // no payload: the books are as those before it were; see Writer.Open
	checkpointFrame // inputs that make empty books those after all inputs before it; events counts the frames of it that follow
)

// frame is a frame's header.
type frame struct {
	kind        frameKind
	sequence    uint32 // counts the frames of the file
	length      uint32 // bytes of the payload in the file
	size        uint32 // bytes of the payload, decompressed
	events      uint32
	first, last uint64 // ns of CLOCK_MONOTONIC: all inputs of the frame came at first or later; all inputs up to last are in the frame or before it
	sum         uint32 // CRC-32C of the payload
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// put writes the header to the first bytes of b.
func (f *frame) put(b []byte) {
	copy(b, marker)
	le := binary.LittleEndian
	le.PutUint32(b[4:], uint32(f.kind))
	le.PutUint32(b[8:], f.sequence)
	le.PutUint32(b[12:], f.length)
	le.PutUint32(b[16:], f.size)
	le.PutUint32(b[20:], f.events)
	le.PutUint64(b[24:], f.first)
	le.PutUint64(b[32:], f.last)
	le.PutUint32(b[40:], f.sum)
	le.PutUint32(b[44:], checksum(b[:44]))
}

// parseFrame parses a header. It returns false if b is not a header.
func parseFrame(b []byte) (frame, bool) {
	le := binary.LittleEndian
	if string(b[:len(marker)]) != marker || le.Uint32(b[44:]) != checksum(b[:44]) || le.Uint32(b[4:]) > 255 {
		return frame{}, false
	}
	f := frame{
		kind: frameKind(b[4]), sequence: le.Uint32(b[8:]), length: le.Uint32(b[12:]), size: le.Uint32(b[16:]),
		events: le.Uint32(b[20:]), first: le.Uint64(b[24:]), last: le.Uint64(b[32:]), sum: le.Uint32(b[40:]),
	}
	return f, f.size <= maxPayload && f.length <= 2*maxPayload && f.first <= f.last
}

// head returns the beginning of a file.
func head(h *wire.Head) ([]byte, error) {
	text, err := proto.Marshal(h)
	if err != nil {
		return nil, err
	}
	if len(text) > maxHead {
		return nil, errors.New("the names of host and tool are too long")
	}
	b := []byte(magic)
	b = binary.LittleEndian.AppendUint32(b, version)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(text)))
	b = append(b, text...)
	return binary.LittleEndian.AppendUint32(b, checksum(b)), nil
}

// ErrNotCapture means that a file is not a capture.
var ErrNotCapture = errors.New("it is not a capture of vramprof")

var errHead = errors.New("its header is damaged: nothing can be read")

// parseHead parses the beginning of a file in b. It returns the offset of the first frame.
func parseHead(b []byte) (*wire.Head, int, error) {
	if n := min(len(b), len(magic)); string(b[:n]) != magic[:n] || n == 0 {
		return nil, 0, ErrNotCapture
	}
	if len(b) < fixedHead {
		return nil, 0, errors.New("it ends within its header: nothing was captured")
	}
	le := binary.LittleEndian
	written, length := le.Uint32(b[len(magic):]), le.Uint32(b[len(magic)+4:])
	h := &wire.Head{}
	end := fixedHead + int(min(length, maxHead))
	whole := length <= maxHead && len(b) >= end+4 && le.Uint32(b[end:]) == checksum(b[:end]) && proto.Unmarshal(b[fixedHead:end], h) == nil
	switch {
	case written != version && whole && written < 1<<16:
		return nil, 0, otherVersion(written, h)
	case written != version:
		return nil, 0, fmt.Errorf("it has format version %d, so it is damaged or from a later vramprof (this one reads version %d)", written, version)
	case !whole:
		return nil, 0, errHead
	}
	return h, end + 4, nil
}

func otherVersion(written uint32, h *wire.Head) error {
	age := "a later"
	if written < version {
		age = "an earlier"
	}
	by := ""
	if tool := clean(h.GetTool()); tool != "" {
		by = " (" + tool + ")"
	}
	return fmt.Errorf("it has format version %d, from %s vramprof%s: this one reads version %d", written, age, by, version)
}

// nextMarker finds where a frame may start in b, or returns -1.
func nextMarker(b []byte) int { return bytes.Index(b, []byte(marker)) }
