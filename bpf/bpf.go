// SPDX-License-Identifier: Apache-2.0

// Package bpf is the kernel half of vramprof: its objects for amd64 and arm64, and their wire
// format. The C sources and the objects are GPL-2.0-only, since they include the unwinder's
// headers.
//
// The C half consists of three sources: probe.bpf.c has the probes, walk.bpf.c the steps of a walk
// between its first and its last, and process.bpf.c watches processes. Their headers, from the
// bottom up:
//
//   - unwinder_defs, kernel_fields, helpers, map_macros, hash, change_time: declarations
//   - event, counters, processes, threads, shares: data that probes and process.bpf.c share
//   - losses, rings, filter, functions, wrappers, registers, attach_cookie, thread_entries, preempt: tools of
//     probes
//   - contexts, captures, effects, call_events: calls of CUDA
//   - size_classes, allocators, allocator_totals, block*: PyTorch's allocators
//   - unwinder_maps, unwinder_functions, walk_*, find_code, sent_stacks, runtime_parts, unwind: walks
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
	// TensorDevice is the allocator of one process on one device.
	TensorDevice = probeTensorDevice
	// SentStacks is a set of the map "stacks".
	SentStacks = probeSentStacks
	// NearBlocks is a table of live blocks of one GPU allocator.
	NearBlocks = probeNearTable
	// Share is what one process has of the tables and rings that all processes share.
	Share    = probeShare
	Function = probeFunction
	// BlockLayout is where a build of PyTorch has the fields of a Block; see block_details.h.
	BlockLayout = probeBlockLayout
	// AllocatorDetails is what the kernel half keeps of a GPU allocator for details of its blocks.
	AllocatorDetails = probeAllocatorDetails
	// Wrapper counts the calls of a runtime function in one file; see wrappers.h.
	Wrapper = probeWrapper
	// RuntimePart is what the map "runtime_parts" has of a range of code in a runtime's file.
	RuntimePart = probeRuntimePart
	Process     = probeProcess
	MappedFile  = processMappedFile
	// MappedCode is a record of the iterator process_code.
	MappedCode = processMappedCode
	// Code describes a part of a file that is mapped as code, and CodeKey identifies it; see
	// find_code.h.
	Code    = findCode
	CodeKey = findCodeKey
)

// Limits of the records of one process from mapped_files: of one file with no mapping of another
// between them, and of all files.
const (
	MaxParts  = int(processMappedLimitMAX_PARTS)
	MaxMapped = int(processMappedLimitMAX_MAPPED)
)

// ErrShort means that a record is too short for its type.
var ErrShort = errors.New("record too short")

// DecodeEvent decodes one record of the ring of events. The result points into raw, which must be
// aligned to 8 bytes, as the ring's records are.
func DecodeEvent(raw []byte) (*Event, error) {
	if uintptr(len(raw)) < unsafe.Sizeof(Event{}) {
		return nil, fmt.Errorf("event of %d bytes: %w", len(raw), ErrShort)
	}
	return (*Event)(unsafe.Pointer(unsafe.SliceData(raw))), nil
}

// Halvings returns how often the sampling probability of a KindBlock event was halved.
func (e *probeEvent) Halvings() uint8 { return e.Function }

// DecodeDetails returns the details that follow the event in a record of the ring of events, or nil
// if the record has none. The result points into raw.
func DecodeDetails(raw []byte) *Details {
	size := unsafe.Sizeof(Event{})
	if uintptr(len(raw)) < size+unsafe.Sizeof(Details{}) {
		return nil
	}
	return (*Details)(unsafe.Pointer(&raw[size]))
}

// DecodeMappedFile decodes the next record of the iterator mapped_files and returns the remaining
// bytes.
func DecodeMappedFile(raw []byte) (*MappedFile, []byte, error) {
	size := int(unsafe.Sizeof(MappedFile{}))
	if len(raw) < size {
		return nil, nil, fmt.Errorf("mapped file of %d bytes: %w", len(raw), ErrShort)
	}
	record := *(*MappedFile)(unsafe.Pointer(unsafe.SliceData(raw)))
	return &record, raw[size:], nil
}

// DecodeMappedCode decodes the records of the iterator process_code and the layout that follows
// them; 0 means that there is none.
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

// SplitBlockKey returns the allocator's number and the block's address from a key of the map
// "blocks".
func SplitBlockKey(key uint64) (allocator uint32, address uint64) {
	const bits = probeBlockKeyBitsALLOCATOR_BITS
	return uint32(key & (1<<bits - 1)), key >> bits << probeBlockKeyBitsALIGNMENT_BITS
}

// BlockSize returns a block's size in bytes from its value in the map "blocks" or in a near table.
func BlockSize(value uint64) uint64 { return value >> probeBlockValueBitsSIZE_SHIFT }
