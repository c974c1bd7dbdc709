// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
)

// Limits of reading: a base for every profile plus an amount per byte of the compressed file. Real
// profiles stay far below: one of 10,000 sites with 30 frames has 1 MiB, is unpacked 6 MiB, and
// takes 40 MiB.
const (
	baseUnpacked, unpackedPerByte = 32 << 20, 64
	baseMemory, memoryPerByte     = 64 << 20, 512

	maxProfile = 512 << 20 // bytes of an uncompressed profile in any case
)

// LimitError means that reading stopped at a limit.
type LimitError struct{ text string }

func (e *LimitError) Error() string { return e.text }

// counted counts the bytes that are read.
type counted struct {
	io.Reader
	n int64
}

func (c *counted) Read(p []byte) (n int, err error) {
	n, err = c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// unpack returns the bytes of a compressed profile, and the size of the file.
func unpack(r io.Reader, unlimited bool) (text []byte, size int64, err error) {
	file := &counted{Reader: r}
	z, err := gzip.NewReader(file)
	if err != nil {
		return nil, 0, err
	}
	for part := make([]byte, 1<<20); ; {
		n, err := z.Read(part)
		text = append(text, part[:n]...)
		switch {
		case len(text) > maxProfile:
			return nil, 0, fmt.Errorf("it is larger than %d MiB", maxProfile>>20)
		case !unlimited && int64(len(text)) > baseUnpacked+unpackedPerByte*file.n:
			return nil, 0, &LimitError{fmt.Sprintf("it unpacks to more than %d MiB from %d bytes: no real profile does, so it is damaged or forged", len(text)>>20, file.n)}
		case errors.Is(err, io.EOF):
			return text, file.n, nil
		case err != nil:
			return nil, 0, err
		}
	}
}

// kind is a type of message of a profile.
type kind int

const (
	profileMessage kind = iota
	sampleMessage
	labelMessage
	mappingMessage
	locationMessage
	lineMessage
	functionMessage
	valueMessage
	kinds
)

// costs are about the bytes that the parser takes for a message of each kind, with its entries in
// slices and maps.
var costs = [kinds]uint64{sampleMessage: 320, labelMessage: 192, mappingMessage: 256, locationMessage: 256, lineMessage: 64, functionMessage: 256, valueMessage: 128}

// The parser takes about so many bytes for each number of a list, for each comment, and for a
// string besides its bytes.
const costOfNumber, costOfComment, costOfString = 24, 64, 32

// inner are the messages in messages, by field.
var inner = [kinds]map[protowire.Number]kind{
	profileMessage:  {1: valueMessage, 2: sampleMessage, 3: mappingMessage, 4: locationMessage, 5: functionMessage, 11: valueMessage},
	sampleMessage:   {3: labelMessage},
	locationMessage: {4: lineMessage},
}

const fieldOfStrings = 6 // of a profile

// memoryFor returns about how many bytes the parser takes for a message, or more than limit if it
// takes more. It takes none itself.
func memoryFor(of kind, text []byte, limit uint64) (uint64, error) {
	sum, ofNumber := costs[of], uint64(costOfNumber)
	if of == profileMessage {
		ofNumber = costOfComment
	}
	for len(text) > 0 && sum <= limit {
		number, wire, n := protowire.ConsumeTag(text)
		if n < 0 {
			return 0, protowire.ParseError(n)
		}
		text = text[n:]
		if wire != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, wire, text); n < 0 {
				return 0, protowire.ParseError(n)
			}
			text, sum = text[n:], sum+ofNumber
			continue
		}
		value, n := protowire.ConsumeBytes(text)
		if n < 0 {
			return 0, protowire.ParseError(n)
		}
		text = text[n:]
		switch in, ok := inner[of][number]; {
		case ok:
			more, err := memoryFor(in, value, limit)
			if err != nil {
				return 0, err
			}
			sum += more
		case of == profileMessage && number == fieldOfStrings:
			sum += costOfString + uint64(len(value))
		default: // a packed list of numbers
			sum += ofNumber * uint64(len(value))
		}
	}
	return sum, nil
}

// checkMemory returns an error if parsing a profile would take more memory than a real one of the
// file's size does.
func checkMemory(text []byte, size int64) error {
	limit := uint64(baseMemory + memoryPerByte*size)
	sum, err := memoryFor(profileMessage, text, limit)
	if err != nil {
		return err
	}
	if sum > limit {
		return &LimitError{fmt.Sprintf("it would take more than %d MiB of memory: no real profile of %d bytes does, so it is damaged or forged", limit>>20, size)}
	}
	return nil
}
