// SPDX-License-Identifier: Apache-2.0

// Package oomevent defines the type of an out-of-memory error, which other packages find, record
// and report.
package oomevent

import "github.com/vramprof/vramprof/tracer/ledger"

// Event is an out-of-memory error: a failed allocation of a process, and NVML's reading right after
// it.
type Event struct {
	PID       uint32
	Comm      string // at most 15 bytes, untrusted
	Time      uint64 // ns of CLOCK_MONOTONIC
	Stack     uint64 // id of the stack that asked; 0: none was taken
	API       string // "torch" for PyTorch's allocator, else the call, "cudaMalloc"
	Kind      ledger.Kind
	Device    int32  // CUDA ordinal or ledger.UnknownDevice
	Size      uint64 // bytes requested, or ledger.UnknownSize
	Allocated uint64 // by PyTorch's allocator on that device, as it reports; 0 for other callers
	Reserved  uint64 // likewise

	Read  uint64            // time of the reading below; 0: none
	GPUs  []ledger.GPU      // as NVML lists them
	Usage []ledger.Usage    // of all processes, traced or not
	Names map[uint32]string // of processes that are not traced
}
