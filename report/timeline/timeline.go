// SPDX-License-Identifier: Apache-2.0

// Package timeline says how memory went over a recording: what each process had on each GPU, by plane, and what each
// site held, at rising times: see Moments.
package timeline

import "github.com/vramprof/vramprof/tracer/ledger"

// Timeline is a value: nothing in it changes once it is made. Times are ns of CLOCK_MONOTONIC, sizes bytes.
type Timeline struct {
	Times     []uint64 // rising, not evenly: see Moments; the last is the end of what is shown
	Processes []ledger.Process
	GPUs      []ledger.GPU
	Rows      []Row  // by process, then device
	Sites     []Site // by their bytes at the end, largest first
	Marks     []Mark // by time
}

// Row is what one process had on one GPU. All slices have the length of Times, but those of planes that the row never had; before a process is seen they are 0.
type Row struct {
	Process int    // index into Processes
	UUID    string // of the GPU, "" without NVML
	Device  int32  // CUDA ordinal, or ledger.UnknownDevice

	Usage       []uint64 // what NVML said last and what was booked since; 0 without NVML
	Tensors     []uint64 // these add up to Usage, as ledger.Part has them
	Cached      []uint64
	Driver      []uint64
	Before      []uint64 // all that is older than the attach
	Unexplained []int64
	Host        []uint64 // page-locked memory, on the row of the process's first GPU; in no sum of the others
	Managed     []uint64 // in no sum either; nil without any
	Asleep      []uint64 // tensors whose memory was unmapped, likewise
}

// Site is where memory is summed, as ledger.Site is: it has its fields as they are at the end, and what it held.
type Site struct {
	ledger.Site
	Live []uint64 // at Times; of a segment what PyTorch's cache holds, of tensors those that are not asleep
}

// Mark is something that happened.
type Mark struct {
	Time    uint64
	Kind    MarkKind
	Process int
	Device  int32
	Size    uint64 // bytes asked for
	Stack   uint64
	API     string
}

// MarkKind says what a Mark marks.
type MarkKind uint8

const (
	OutOfMemory MarkKind = iota + 1 // an allocation failed with that error
	Large                           // one of the largest driver allocations
	Began                           // of a process: when it was first seen
	Ended                           // of a process
)
