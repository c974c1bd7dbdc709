// SPDX-License-Identifier: Apache-2.0

package ledger

import "math"

// Op is what an Event reports.
type Op uint8

// Unless noted otherwise, an event is sent when its call has returned success.
const (
	// Address has Size bytes; an Imported or Physical one that is live gets a reference more.
	Alloc       Op = iota + 1
	AllocFailed    // an allocation returned an error; books nothing
	// On entry: the allocation Address in Space ends, or loses a reference.
	Free
	FreeFailed // the thread's last Free or Unmap returned an error and is undone
	Exec       // the process called execve, which frees its CUDA memory
	Exit       // the last thread of the process ended

	Alias  // Address leads to memory that is booked elsewhere, so its Free is not unmatched
	Map    // the Size bytes from Address on map the physical memory Handle
	Unmap  // on entry: all mappings in the Size bytes from Address on end
	Retain // the physical memory mapped at Address gets a reference more, under Handle
	Export // another process that imports Handle gets the allocation at Address

	ContextRetain  // Context, the primary context of Device, gets a reference more
	ContextRelease // Context loses a reference, and with the last one its allocations
	ContextReset   // the allocations of the primary context of Device end
	ContextDestroy // Context ends with its allocations

	// Handle 0 is the default pool of Device. For a pool of memory that is not one GPU's, Kind is
	// Pinned or Managed.
	PoolCreate    // Handle is a pool of Device; also sent for pools that exist already
	PoolDestroy   // Handle ends and gives back unused memory; its allocations stay
	PoolTrim      // Handle gives back unused memory beyond Size bytes
	PoolThreshold // Handle keeps up to Size unused bytes when the program synchronizes
	PoolOwn       // Handle is the default pool of Device, also known as 0
	// First report of PyTorch's allocator of Device, which had Size bytes allocated and Handle
	// bytes reserved.
	Allocator
	PoolSelect // later allocations on Device that name no pool take from Handle

	// An allocation of Size bytes failed for good; of a Tensor, Context bytes were allocated and
	// Handle bytes reserved. It changes no figure: see Peak.OOM.
	OutOfMemory
	Totals      // the totals of PyTorch's allocator of Device changed: see Told
	AddressFree // Size bytes of reserved addresses from Address on are given back

	PoolCurrent // allocations on Device that name no pool take from Handle

	// Address is a new driver object of Kind; Size is what the caller named, UnknownSize or 0 if
	// nothing.
	ObjectCreate
	ObjectEnd // on entry: the driver object Address of Kind ends
	// As ObjectCreate of a GreenContext of Device, whose primary context gets a reference more.
	GreenCreate
	GreenDestroy // on entry: the green context Address ends
	// Context is a CUcontext of the green context Handle: its allocations belong to the primary
	// context.
	ContextDerive

	// Device, and Context if known, were current in the thread TID since the time Address; Size
	// contexts were pushed then. Allocations of the thread since then whose device is unknown move
	// there.
	Learn

	// No other stream uses the freed block Address any more; see DetailWaits. It changes no figure.
	Completed
)

// Told is the set of totals that an Event of a Tensor has, as they were after the event.
type Told uint8

const (
	ToldAllocated Told = 1 << iota // Allocated and Reserved
	ToldLive                       // Live
)

// Detail is what else an Event of a Tensor tells, where that was recorded. It changes no figure.
type Detail uint8

const (
	// Alloc: Requested, Stream and Pool are known. Free: it is known whether the block's memory
	// waits, and the end of that will be told.
	DetailKnown Detail = 1 << iota
	// Free, and Totals of an older block: other streams use the block. Its memory waits until
	// Completed.
	DetailWaits
	// Totals: the block Address, which is older than the attach, was freed.
	DetailOlder
	// Totals: an allocation of Requested bytes, rounded, ran out of memory.
	DetailFailed

	AllDetails = DetailKnown | DetailWaits | DetailOlder | DetailFailed
)

// Kind is how memory was allocated.
type Kind uint8

const (
	Device     Kind = iota + 1 // memory of one GPU
	Managed                    // migrates between host and GPU; the driver counts it on neither
	Pinned                     // page-locked host memory
	Registered                 // host memory of the program that was page-locked later
	Async                      // from a stream-ordered pool
	VMM                        // physical memory of the virtual memory API
	Array                      // arrays and mipmaps
	Imported                   // memory of another process or API, which sums count for its owner
	Graph                      // from an alloc node of a graph
	Tensor                     // a block of PyTorch's allocator; events are a sample of them

	// Driver objects, which take memory that no call reports: counted, never part of a sum.
	DriverContext // CUcontext
	GreenContext  // CUgreenCtx
	Module        // CUmodule
	Library       // CUlibrary
	GraphExec     // CUgraphExec

	aliased // of an entry that is known and not booked, never of an event: see Alias

	// Memory of a GPU that the driver takes for itself: for contexts, modules, local memory.
	Internal

	lastKind = Internal
)

// OnHost reports whether the memory is on the host, whatever device was current.
func (k Kind) OnHost() bool { return k == Pinned || k == Registered }

// IsObject reports whether it is a driver object, not memory.
func (k Kind) IsObject() bool { return k >= DriverContext && k <= GraphExec }

// Owned reports whether the driver counts the memory as the process's usage of a GPU.
func (k Kind) Owned() bool {
	return !k.OnHost() && k != Managed && k != Imported && k < Tensor || k == Internal
}

// Space is the meaning of an Event's Address: the same number means different things in different
// spaces.
type Space uint8

const (
	Addresses Space = iota // unified addresses: device, managed, pinned, async, opened by IPC
	Registers              // host memory of cuMemHostRegister, by its address
	Arrays                 // CUarray
	Mipmaps                // CUmipmappedArray
	Externals              // CUexternalMemory
	// CUmemGenericAllocationHandle: lives until it has no references and no mappings.
	Physical
	Blocks // blocks of PyTorch's allocator, by their address
	// The numbers that the books give to physical memory, never of an event: a memory can have
	// several handles, and the driver reuses a handle while its memory still lives.
	memories
	// Objects of the kernel driver: the client in the high half, the handle in the low one. The end
	// of a client ends its objects.
	Objects

	lastSpace = Objects
)

// UnknownDevice is the device of an allocation whose device is unknown.
const UnknownDevice = -1

// CPUDevice is the device of blocks on the host.
const CPUDevice = -2

// UnknownSize is a size that the call does not name or that could not be read. The allocation is
// counted with 0 bytes.
const UnknownSize = math.MaxUint64

// Event is one finished call, or the end of a process. Events of one process must be applied in the
// order in which the kernel reported them.
type Event struct {
	Op       Op
	Kind     Kind
	Space    Space
	PID, TID uint32 // host pid (the kernel's tgid) and thread id
	Device   int32  // CUDA ordinal in the process, or UnknownDevice
	Result   int32  // CUresult or cudaError_t; 0 is success
	// Time in ns of CLOCK_MONOTONIC: when the call returned; when it was entered if it frees or
	// ends something.
	Time    uint64
	Address uint64 // or a handle: see Space
	Size    uint64 // bytes; 0 for frees
	Stack   uint64 // id of the stack of the outermost call; 0: none
	Context uint64 // CUcontext in which the call was made; 0: unknown
	// Async: the pool, 0 for the device's current one; Imported: the Handle of the Export, 0 if
	// none; ContextDerive: the green context.
	Handle uint64
	// Alloc of a Tensor: how often the sampling probability of its size class was halved.
	Halvings uint8
	API      string // name of the outermost call, "cudaMalloc"

	Told      Told
	Allocated uint64 // bytes by the allocator's own count; Live if it has none
	Reserved  uint64 // bytes by the same count; 0 if it has none
	Live      uint64 // bytes of the blocks that were allocated since the attach

	Detail    Detail
	Requested uint64 // bytes that the program asked for
	Stream    uint64 // its cudaStream_t
	Pool      uint64 // identifies a private pool among those that live; 0: the default one
}

// isVoid reports whether an event changes nothing in any books, so that it is no sign of a process.
func (e *Event) isVoid() bool {
	if e.Kind.IsObject() {
		return e.Op != ObjectCreate && e.Op != ObjectEnd && e.Op != GreenCreate && e.Op != GreenDestroy
	}
	switch e.Op {
	case Alloc:
		switch {
		case e.Kind == Tensor || e.Space == Blocks:
			return !e.isBlock() && !e.hasTotals()
		case e.Address == 0:
			return true // cudaMalloc(0) succeeds with a null pointer
		}
		return e.Size == 0 && e.Space == Addresses
	case Free:
		return e.Address == 0
	case Alias:
		return e.Address == 0 || e.Space == Blocks
	case Unmap:
		return e.Address == 0 || e.Size == 0
	case ContextDestroy:
		return e.Context == 0
	case Totals:
		return !e.hasTotals()
	case AllocFailed, Map, Retain, Export, ContextDerive, ContextRetain, ContextRelease, ContextReset,
		PoolCreate, PoolDestroy, PoolTrim, PoolThreshold, PoolOwn, PoolSelect, PoolCurrent, Allocator, AddressFree:
		return false
	}
	return true
}

// isBlock reports whether an allocation is of a block that can be booked.
func (e *Event) isBlock() bool {
	return e.Kind == Tensor && e.Space == Blocks && e.Address != 0 && e.Size != 0 && e.Size <= maxSize
}

// hasTotals reports whether an event has totals of an allocator of a GPU.
func (e *Event) hasTotals() bool {
	return e.Told != 0 && e.Space == Blocks && tensorDevice(e.Device) >= 0
}

// tensorDevice returns the device of a block: a GPU, the host, or UnknownDevice.
func tensorDevice(device int32) int32 {
	if uint32(device) >= maxDevices && device != CPUDevice {
		return UnknownDevice
	}
	return device
}
