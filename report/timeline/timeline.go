// SPDX-License-Identifier: Apache-2.0

// Package timeline shows memory over the time of a session: what each process had on each GPU, by
// plane, and what each site held, at the times that Play chooses.
package timeline

import "github.com/vramprof/vramprof/tracer/ledger"

// Timeline is immutable. Times are ns of CLOCK_MONOTONIC, sizes are bytes.
type Timeline struct {
	Times     []uint64 // rising, at uneven steps: see Play; the last is the end
	Processes []ledger.Process
	GPUs      []ledger.GPU
	Rows      []Row  // by process, then device
	Sites     []Site // by their bytes at the end, largest first
	Marks     []Mark // by time
}

// Row is the memory of one process on one GPU. All slices have the length of Times, except planes
// that the row never had; values are 0 before the process was first seen.
type Row struct {
	Process int    // index into Processes
	UUID    string // of the GPU, "" without NVML
	Device  int32  // CUDA ordinal, or ledger.UnknownDevice

	Usage       []uint64 // NVML's last reading, corrected by the events since; 0 without NVML
	Tensors     []uint64 // these add up to Usage, as ledger.Part has them
	Cached      []uint64
	Driver      []uint64
	Rounding    []uint64
	Before      []uint64 // all memory from before the attach
	Unexplained []uint64
	Beyond      []uint64 // see ledger.Part.Beyond; not part of Usage; nil without any
	Host        []uint64 // page-locked memory, on the row of the process's first GPU; not part of Usage
	Managed     []uint64 // not part of Usage; nil without any
	System      []uint64 // allocated by the system on the GPU's NUMA node, likewise
	Asleep      []uint64 // tensors asleep, likewise
}

// Site is a ledger.Site as of the end, with its live bytes over time.
type Site struct {
	ledger.Site
	Live []uint64 // at Times; of segments the cache, of tensors those not asleep

	seen uint64 // the latest moment that has it, until the timeline is complete
}

// Mark is an event worth showing.
type Mark struct {
	Time    uint64
	Kind    MarkKind
	Process int
	Device  int32
	Size    uint64 // bytes asked for
	Stack   uint64
	API     string
}

// MarkKind is the kind of a Mark.
type MarkKind uint8

const (
	OutOfMemory MarkKind = iota + 1 // an allocation failed with that error
	Large                           // one of the largest driver allocations
	Began                           // the first time that a process was seen
	Ended                           // of a process
)
