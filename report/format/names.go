// SPDX-License-Identifier: Apache-2.0

package format

import (
	"fmt"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Noun returns what one allocation of a kind is called: "tensor", "object" or "allocation".
func Noun(k ledger.Kind) string {
	switch k {
	case ledger.Tensor:
		return "tensor"
	case ledger.Internal:
		return "object"
	}
	return "allocation"
}

var kindNames = map[ledger.Kind]string{
	ledger.Device:     "device",
	ledger.Managed:    "managed",
	ledger.Pinned:     "pinned",
	ledger.Registered: "registered",
	ledger.Async:      "async",
	ledger.VMM:        "vmm",
	ledger.Array:      "array",
	ledger.Imported:   "imported",
	ledger.Graph:      "graph",
	ledger.Tensor:     "tensor",

	ledger.DriverContext: "context",
	ledger.GreenContext:  "green context",
	ledger.Module:        "module",
	ledger.Library:       "library",
	ledger.GraphExec:     "graph executable",

	ledger.Internal: "driver's own",
}

var causeNames = map[ledger.Cause]string{
	ledger.ContextDestroyed: "context destroy",
	ledger.ContextReleased:  "context release",
	ledger.ContextWasReset:  "device reset",
}

// Cause returns the name of what freed allocations without a call for each: "device reset".
func Cause(c ledger.Cause) string {
	if name := causeNames[c]; name != "" {
		return name
	}
	return fmt.Sprintf("cause %d", c)
}

// Kind returns the name of a kind: "device", "pinned", "graph executable".
func Kind(k ledger.Kind) string {
	if name := kindNames[k]; name != "" {
		return name
	}
	return fmt.Sprintf("kind %d", k)
}

// Device returns a device in PyTorch's spelling: "cuda:0", "cpu", "host", "unknown". Host memory is
// on no device, whichever was current when it was allocated.
func Device(device int32, kind ledger.Kind) string {
	switch {
	case kind.OnHost():
		return "host"
	case kind == ledger.Tensor && device == ledger.CPUDevice:
		return "cpu"
	case device < 0:
		return "unknown"
	}
	return fmt.Sprintf("cuda:%d", device)
}

// resultNames are names of CUresult and cudaError_t, which share a numbering where both have a code
// (cuda.h, driver_types.h).
var resultNames = map[int32]string{
	1:   "invalid value",
	2:   "out of memory",
	3:   "not initialized",
	4:   "driver shutting down",
	17:  "invalid device pointer",
	35:  "driver too old",
	46:  "devices unavailable",
	100: "no device",
	101: "invalid device",
	201: "invalid context",
	208: "already mapped",
	214: "uncorrectable ECC error",
	400: "invalid handle",
	700: "illegal address",
	702: "launch timeout",
	709: "context destroyed",
	712: "host memory already registered",
	713: "host memory not registered",
	719: "launch failed",
	800: "not permitted",
	801: "not supported",
	802: "system not ready",
	900: "not allowed during stream capture",
	999: "unknown error",
}

// Result returns the name of a CUresult or cudaError_t: "out of memory".
func Result(result int32) string {
	if name, known := KnownResult(result); known {
		return name
	}
	return fmt.Sprintf("error %d", result)
}

// KnownResult returns the name of a CUresult or cudaError_t if it has one.
func KnownResult(result int32) (name string, known bool) {
	name, known = resultNames[result]
	return name, known
}

// ShortUUID returns the first group of a UUID, which is unique on one machine.
// "MIG-GPU-1a2b3c4d-…/1/0", the form of old drivers, keeps its last numbers too.
func ShortUUID(uuid string) string {
	uuid, instance, isInstance := strings.Cut(untrusted.Clean(uuid), "/")
	short, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(uuid, "MIG-"), "GPU-"), "-")
	if isInstance {
		short += "/" + instance
	}
	return short
}

// Process returns "python3 [42]", or "PyTorch" where the pid is unknown, as in a memory snapshot.
func Process(p *ledger.Process) string {
	comm := untrusted.Clean(p.Comm)
	if comm == "" {
		comm = "pid"
	}
	if p.PID == 0 {
		return comm
	}
	return fmt.Sprintf("%s [%d]", comm, p.PID)
}
