// SPDX-License-Identifier: Apache-2.0

// Package bpf is the kernel half of vramprof: its objects for amd64 and arm64,
// and the wire format in which they report. The C sources and the objects are
// GPL-2.0-only, since they include the unwinder's headers.
package bpf

import (
	"errors"
	"fmt"
	"unsafe"
)

//go:generate sh gen.sh

// Types shared with the C half, copied from its BTF.
type (
	Event      = probeEvent
	Kind       = uint8 // of an event
	Details    = probeDetails
	ContextKey = probeContextKey
	StreamKey  = probeStreamKey
	TensorKey  = probeTensorKey
	// TensorDevice is what the allocator of a process has on one device.
	TensorDevice = probeTensorDevice
	// NearBlocks are live blocks of one allocator on a GPU.
	NearBlocks  = probeNearBlocks
	SampleClass = probeSampleClass
	// Share is what a process has of what all share.
	Share      = probeShare
	Function   = probeFunction
	Process    = probeProcess
	MappedFile = processMappedFile
	// MappedCode is a record of process_code.
	MappedCode = processMappedCode
	// Code is a part of a file that is mapped as code, CodeKey where: see bpf/find_code.h.
	Code    = findCode
	CodeKey = findCodeKey
)

// ErrShort says that a record is too short to be what it should be.
var ErrShort = errors.New("record too short")

// DecodeEvent reads one record of the events ring. The result points into raw
// and is valid as long as raw is. raw must be aligned to 8 bytes, as the ring's
// records are.
func DecodeEvent(raw []byte) (*Event, error) {
	if uintptr(len(raw)) < unsafe.Sizeof(Event{}) {
		return nil, fmt.Errorf("event of %d bytes: %w", len(raw), ErrShort)
	}
	return (*Event)(unsafe.Pointer(unsafe.SliceData(raw))), nil
}

// Halvings says, of KindBlock, how often the probability of blocks like it to be sampled was halved.
func (e *probeEvent) Halvings() uint8 { return e.Function }

// DecodeDetails gives what follows the event in a record of the events ring,
// nil if nothing does. It is valid as long as raw is.
func DecodeDetails(raw []byte) *Details {
	size := unsafe.Sizeof(Event{})
	if uintptr(len(raw)) < size+unsafe.Sizeof(Details{}) {
		return nil
	}
	return (*Details)(unsafe.Pointer(&raw[size]))
}

// DecodeMappedFile reads the next record of the mapped_files iterator and
// returns the bytes behind it.
func DecodeMappedFile(raw []byte) (*MappedFile, []byte, error) {
	size := int(unsafe.Sizeof(MappedFile{}))
	if len(raw) < size {
		return nil, nil, fmt.Errorf("mapped file of %d bytes: %w", len(raw), ErrShort)
	}
	record := *(*MappedFile)(unsafe.Pointer(unsafe.SliceData(raw)))
	return &record, raw[size:], nil
}

// DecodeMappedCode reads the records of the process_code iterator, and the layout behind them; 0 without one.
func DecodeMappedCode(raw []byte) (list []MappedCode, layout uint64, err error) {
	size := int(unsafe.Sizeof(MappedCode{}))
	for ; len(raw) >= size; raw = raw[size:] {
		record := *(*MappedCode)(unsafe.Pointer(unsafe.SliceData(raw)))
		if record.Inode == 0 {
			return list, record.Start, nil
		}
		list = append(list, record)
	}
	if len(raw) > 0 {
		return nil, 0, fmt.Errorf("mapped code of %d bytes: %w", len(raw), ErrShort)
	}
	return list, 0, nil
}

// SplitBlockKey returns the allocator's number and the block's address from a key of the map "blocks".
func SplitBlockKey(key uint64) (allocator uint32, address uint64) {
	const bits = probeBlockKeyBitsALLOCATOR_BITS
	return uint32(key & (1<<bits - 1)), key >> bits << probeBlockKeyBitsALIGNMENT_BITS
}

// BlockSize returns a block's size in bytes from its value in the map "blocks" or in a near table.
func BlockSize(value uint64) uint64 { return value >> probeBlockValueBitsSIZE_SHIFT }
