// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/oom/oomevent"
)

// OOM is an out-of-memory error, in words.
type OOM oomevent.Event

// Text returns "ran out of memory on cuda:0 (wanted 2.00 GiB)".
func (o *OOM) Text() string {
	return fmt.Sprintf("ran out of %s (wanted %s)", o.memory(), o.SizeText())
}

func (o *OOM) memory() string {
	switch {
	case o.Kind.OnHost():
		return "host memory that can be pinned"
	case o.Device < 0:
		return "memory on a GPU"
	}
	return "memory on " + format.Device(o.Device, ledger.Device)
}

// SizeText returns the requested size, "2.00 GiB" or "an unknown size".
func (o *OOM) SizeText() string {
	if o.Size == ledger.UnknownSize {
		return "an unknown size"
	}
	return format.Bytes(o.Size)
}

const torchAPI = "torch" // as the ledger calls reports of PyTorch's allocators

// FromTorch reports whether PyTorch's allocator ran out of memory.
func (o *OOM) FromTorch() bool { return o.API == torchAPI }

// Caller returns what asked for the memory: "PyTorch's allocator", "cudaMalloc".
func (o *OOM) Caller() string {
	if name := CallText(o.API); name != "" {
		return name
	}
	return "an unknown call"
}

// CallText returns the name of a call, which a process may have chosen: "PyTorch's allocator",
// "cudaMalloc".
func CallText(api string) string {
	if api == torchAPI {
		return "PyTorch's allocator"
	}
	return untrusted.Clean(api)
}

// OOMGPU is the GPU of an out-of-memory error, and who was on it.
type OOMGPU struct {
	GPU      *ledger.GPU // with Used as of the error; nil: unknown
	Own      uint64      // bytes of the process that failed
	Workload ledger.Workload
	Line     callstack.Frame // that asked for the memory
	Users    []OOMUser       // other processes, largest first
}

// OOMUser is another process on the GPU of an out-of-memory error.
type OOMUser struct {
	PID       uint32
	Comm      string // untrusted
	Workload  ledger.Workload
	Bytes     uint64 // on that GPU, as NVML reports them
	Traced    bool
	Line      *callstack.Frame // that holds most of it; nil: none is known
	LineBytes uint64
}
