// SPDX-License-Identifier: Apache-2.0

package ledger

// Observer is told when memory begins and ends, in the order in which a Ledger books it. Its
// methods run inside Apply and Tell, and must not call the Ledger.
//
// The ledger does not report the memory that a process still has when it ends as freed. After Fold,
// memory can end without the stack that it began with.
type Observer interface {
	// Began reports a new process. The one that had its pid before has ended.
	Began(process, pid uint32)

	// Allocated reports that a is live from time on. A time later than a.Time means that it is live
	// again, since its free failed.
	Allocated(a Allocation, time uint64)

	// Freed reports that a is not live any more: it was freed, its context ended, or its address
	// was allocated again.
	Freed(a Allocation, time uint64)

	// Mapped reports that a range of addresses leads to physical memory from time on. A time later
	// than m.Time means that it does so again, since its unmapping failed.
	Mapped(m Mapping, time uint64)

	// Unmapped reports that the range does not lead there any more.
	Unmapped(m Mapping, time uint64)

	// Moved reports that the device of a live allocation became known.
	Moved(a Allocation)

	// Unmatched reports a free or an unmapping of memory that is not booked, for example because it
	// is older than the attach. a has only Process, PID, Space, Address and, of an unmapping, Size.
	Unmatched(a Allocation, time uint64)
}

// Allocation is live memory as an Observer sees it: an allocation, or, of Kind Tensor, a block.
type Allocation struct {
	Process uint32 // a number: a pid has several processes, one after the other
	PID     uint32
	Device  int32 // CUDA ordinal or UnknownDevice; CPUDevice for blocks on the host
	Kind    Kind
	Space   Space
	Address uint64 // in Space; of Physical memory a number of its own instead of a handle
	Size    uint64 // bytes, 0 if unknown
	Time    uint64 // of its allocation, ns
	Stack   uint64 // 0 without one
	API     string
}

// Mapping is the range of addresses [Start, End), which leads to the physical memory Memory.
type Mapping struct {
	Memory     Allocation
	Start, End uint64
	Time       uint64 // of the mapping, ns
}
