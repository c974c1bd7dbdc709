// SPDX-License-Identifier: Apache-2.0

package ledger

import "math"

// Op says what an Event reports.
type Op uint8

// Unless said otherwise an event is sent when its call has returned success.
const (
	Alloc       Op = iota + 1 // Address has Size bytes, or one reference more, if it is Imported or Physical and known
	AllocFailed               // an allocation returned an error; books nothing
	Free                      // entered: what Space and Address name loses one reference
	FreeFailed                // the thread's last Free or Unmap returned an error: undo it
	Exec                      // the process called execve: its CUDA memory is gone
	Exit                      // the last thread of the process ended

	View   // Address leads to memory that is booked elsewhere: nothing to book, its Free is no surprise
	Map    // the Size bytes from Address on map the physical memory Handle
	Unmap  // entered: all mappings in the Size bytes from Address on end
	Retain // Handle is one more reference of the physical memory mapped at Address
	Export // another process that imports Handle gets the allocation at Address

	ContextRetain  // Context, the primary one of Device, has one reference more
	ContextRelease // and one less: with the last one, all that was allocated in it is gone
	ContextReset   // all that was allocated in the primary context of Device is gone
	ContextDestroy // all that was allocated in Context is gone, and Context too

	// Handle 0 is the pool that Device has from the beginning, as in Alloc. Of a pool of other memory than one GPU's, Kind says which.
	PoolCreate    // Handle is a pool of Device; also sent for pools that exist already
	PoolDestroy   // Handle gives back what it holds unused; its allocations stay
	PoolTrim      // Handle gives back what it holds unused above Size bytes
	PoolThreshold // Handle keeps up to Size bytes unused where the program synchronizes
	PoolOwn       // Handle is the pool that Device has from the beginning, the one that 0 stands for
	Allocator     // the first report of PyTorch's allocator of Device: Size bytes were allocated and Handle bytes reserved before it
	PoolSelect    // from now on Alloc of Device without a pool takes from Handle

	OutOfMemory // Size bytes were not to be had, after all that was tried; of a Tensor, Context bytes were allocated and Handle reserved. Books nothing: for recordings
	Totals      // the totals of PyTorch's allocator of Device changed, see Told
	AddressFree // the Size bytes of addresses from Address on are given back: no memory is mapped there

	PoolCurrent // Handle is the pool that allocations of Device without one take from

	ObjectCreate  // Address is a new driver object of Kind; Size: bytes that the caller named, UnknownSize or 0 without
	ObjectEnd     // entered: the driver object Address of Kind ends
	GreenCreate   // as ObjectCreate of a GreenContext of Device, which is one reference more of the device's primary context
	GreenDestroy  // entered: the green context Address ends
	ContextDerive // Context is a name of the green context Handle: what is allocated in it is the primary context's

	Learn // Device was current in the thread TID since the time Address, and Context as far as it was known; Size contexts were pushed then. What was allocated without a device moves there
)

// Told says which totals of its allocator the Event of a Tensor has, as they were after it.
type Told uint8

const (
	ToldAllocated Told = 1 << iota // Allocated and Reserved
	ToldLive                       // Live
)

// Kind is what sort of memory an allocation is.
type Kind uint8

const (
	Device     Kind = iota + 1 // memory of one GPU, out of its context
	Managed                    // migrates between host and GPU, so that the driver counts it on neither
	Pinned                     // page-locked host memory
	Registered                 // host memory of the program, page-locked where it lies
	Async                      // out of a stream-ordered pool
	VMM                        // physical memory of the virtual memory API
	Array                      // arrays and mipmaps
	Imported                   // memory of another process or API; its owner's in all sums
	Graph                      // out of an alloc node of a graph
	Tensor                     // a block that PyTorch's allocator gave out of its segments; events are a sample of them

	// Driver objects, which take memory that no call names: counted, never part of a sum.
	DriverContext // CUcontext
	GreenContext  // CUgreenCtx
	Module        // CUmodule
	Library       // CUlibrary
	GraphExec     // CUgraphExec

	lastKind = GraphExec
)

// OnHost says whether the memory is on the host, whatever device was current.
func (k Kind) OnHost() bool { return k == Pinned || k == Registered }

// IsObject says whether it is a driver object, and no memory.
func (k Kind) IsObject() bool { return k >= DriverContext && k <= lastKind }

// Owned says whether the driver counts the memory as the process's usage of a GPU.
func (k Kind) Owned() bool {
	return !k.OnHost() && k != Managed && k != Imported && k < Tensor
}

// Space is what an Event's Address is: a number means different things in each.
type Space uint8

const (
	Addresses Space = iota // unified addresses: device, managed, pinned, async, opened by IPC
	Registers              // host memory of cuMemHostRegister, by its address
	Arrays                 // CUarray
	Mipmaps                // CUmipmappedArray
	Externals              // CUexternalMemory
	Physical               // CUmemGenericAllocationHandle: lives until it has no references and no mappings
	Blocks                 // blocks of PyTorch's allocator, by their address
)

// UnknownDevice stands for a device ordinal that nothing has told us yet.
const UnknownDevice = -1

// CPUDevice stands for the host where tensors can be on it.
const CPUDevice = -2

// UnknownSize stands for a size that the call does not tell or that could not be read: the
// allocation is counted, with 0 bytes.
const UnknownSize = math.MaxUint64

// Event is one finished call, or the end of a process. Events of one process
// must be applied in the order in which the kernel reported them.
type Event struct {
	Op       Op
	Kind     Kind
	Space    Space
	PID, TID uint32 // host pid (the kernel's tgid) and thread id
	Device   int32  // CUDA ordinal in the process, or UnknownDevice
	Result   int32  // CUresult or cudaError_t; 0 is success
	Time     uint64 // ns of CLOCK_MONOTONIC: return of the call; entry of what frees or ends something
	Address  uint64 // or a handle, as Space says
	Size     uint64 // bytes; 0 for frees
	Stack    uint64 // id of the stack of the outermost call; 0: none was taken
	Context  uint64 // CUcontext in which the call was made; 0: unknown
	Handle   uint64 // Async: the pool, 0 for the device's current one; Imported: what Export named, 0 if nothing can; ContextDerive: the green context
	Halvings uint8  // Alloc of a Tensor: how often the probability of its size class to be in the sample was halved
	API      string // name of the outermost call, "cudaMalloc"

	Told      Told
	Allocated uint64 // bytes, as the allocator says itself; where it says nothing: Live
	Reserved  uint64 // likewise; where it says nothing: 0
	Live      uint64 // bytes of the blocks that were allocated since the attach
}
