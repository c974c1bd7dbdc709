// SPDX-License-Identifier: Apache-2.0

// Package ledger keeps the books of CUDA memory: what is allocated now, by which process, on which
// device and from which stack. It knows nothing of the kernel, symbols or files; it takes Events
// and readings, and returns Snapshots.
//
//	l := ledger.New(ledger.Options{Begin: now})
//	l.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: 7, Address: 0x7f0000, Size: 4096, API: "cudaMalloc"})
//	s := l.Snapshot(now+1e9, time.Now())
//
// Process, Space and address identify an allocation. CUDA's unified addressing covers device,
// managed and pinned memory, so a free needs no kind. Handles of arrays and registered host memory
// are spaces of their own.
//
// Physical memory of the virtual memory API lives until its last handle is released and its last
// mapping ends. When a context ends, its allocations end with it and are summed in
// Snapshot.Releases.
//
// Driver objects, from contexts to graph executables, take memory that no call reports. The ledger
// counts them by stack, and includes them in no sum of bytes.
//
// PyTorch's caching allocator takes segments from the driver and gives blocks out of them. The
// ledger books blocks beside the driver's memory, as a sample weighted by exact totals, and finds
// the allocation that a block lies in by its address: see Tensors, and Snapshot.Parts for the
// whole.
//
// Each process keeps its own books, in layers: see process. What processes share is a session, and
// the Ledger has the list of processes.
//
// An Observer is told of each allocation, block and mapping that begins or ends.
package ledger
