// SPDX-License-Identifier: Apache-2.0

// Package ledger keeps the books of CUDA memory: what is allocated now, by which
// process, on which device and from which stack. It knows nothing of the kernel,
// of symbols or of files; it takes Events and readings and gives Snapshots.
//
//	l := ledger.New(ledger.Options{Begin: now})
//	l.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: 7, Address: 0x7f0000, Size: 4096, API: "cudaMalloc"})
//	s := l.Snapshot(now+1e9, time.Now())
//
// An allocation is (process, Space, address). CUDA's unified addressing covers
// device, managed and pinned memory, so a free needs no kind; handles of arrays
// and registered host memory are spaces of their own.
//
// Physical memory of the virtual memory API lives until its last handle is
// released and its last mapping is gone. What a context owns ends with it, and
// stands in Snapshot.Releases from then on.
//
// Driver objects, from contexts to graph executables, take memory that no call names. They are counted by stack beside the
// allocations, and are in no sum of bytes.
//
// PyTorch's caching allocator takes segments from the driver and gives tensors out of them. Tensors
// are booked beside the driver's memory, as a sample that exact totals weight, and each block's address says in
// which driver allocation it lies: see Tensors, and Snapshot.Parts for the whole.
package ledger
