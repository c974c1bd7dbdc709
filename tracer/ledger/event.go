// SPDX-License-Identifier: Apache-2.0

package ledger

// Op says what an Event reports.
type Op uint8

const (
	Alloc       Op = iota + 1 // an allocation succeeded; sent when its call returned
	AllocFailed               // an allocation returned an error; books nothing
	Free                      // a free was entered
	FreeFailed                // the thread's last free returned an error: undo it
	Exec                      // the process called execve: its CUDA memory is gone
	Exit                      // the last thread of the process ended
)

// Kind is what sort of memory an allocation is.
type Kind uint8

const (
	Device  Kind = iota + 1 // memory of one GPU
	Managed                 // migrates between host and GPU
	Pinned                  // page-locked host memory
)

// UnknownDevice stands for a device ordinal that nothing has told us yet.
const UnknownDevice = -1

// Event is one finished call, or the end of a process. Events of one process
// must be applied in the order in which the kernel reported them.
type Event struct {
	Op       Op
	Kind     Kind
	PID, TID uint32 // host pid (the kernel's tgid) and thread id
	Device   int32  // CUDA ordinal in the process, or UnknownDevice
	Result   int32  // CUresult or cudaError_t; 0 is success
	Time     uint64 // ns of CLOCK_MONOTONIC
	Address  uint64
	Size     uint64 // bytes; 0 for frees
	Stack    uint64 // id of the stack of the outermost call; 0: none was taken
	API      string // name of the outermost call, "cudaMalloc"
}
