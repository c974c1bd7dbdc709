// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/ledger"
)

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
}

var causeNames = map[ledger.Cause]string{
	ledger.ContextDestroyed: "context destroy",
	ledger.ContextReleased:  "context release",
	ledger.ContextWasReset:  "device reset",
}

func causeName(c ledger.Cause) string {
	if name := causeNames[c]; name != "" {
		return name
	}
	return fmt.Sprintf("cause %d", c)
}

// counts says whether memory is in sums: what is imported is in those of its owner.
func counts(k ledger.Kind) bool { return k != ledger.Imported }

func KindName(k ledger.Kind) string {
	if name := kindNames[k]; name != "" {
		return name
	}
	return fmt.Sprintf("kind %d", k)
}

// DeviceName is PyTorch's spelling. Host memory is on no device, whatever
// device was current when it was allocated.
func DeviceName(device int32, kind ledger.Kind) string {
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

// gpuUUID returns the GPU behind a CUDA ordinal of a process, "" if unknown.
func gpuUUID(s *ledger.Snapshot, process int, device int32, kind ledger.Kind) string {
	if kind.OnHost() {
		return ""
	}
	if d := s.Processes[process].Devices; device >= 0 && int(device) < len(d) {
		return d[device]
	}
	uuid, n := "", 0
	for i := range s.Balances {
		if b := &s.Balances[i]; b.Process == process && b.Device == device {
			uuid = b.UUID
			n++
		}
	}
	if n != 1 {
		return ""
	}
	return uuid
}

// resultNames are CUresult and cudaError_t: one numbering where both have a code (cuda.h, driver_types.h).
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

func resultName(result int32) string {
	if name := resultNames[result]; name != "" {
		return name
	}
	return fmt.Sprintf("error %d", result)
}

func BytesText(n uint64) string { return humanize.IBytesN(n, 3) }

// signedBytes always shows the sign, except for 0.
func signedBytes(n int64) string {
	switch {
	case n > 0:
		return "+" + BytesText(uint64(n))
	case n < 0:
		return "-" + BytesText(-uint64(n))
	}
	return BytesText(0)
}

// counted is "1 allocation", "4,312 allocations", "2 processes", "3 branches", "4 libraries".
func counted(n uint64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	switch {
	case strings.HasSuffix(noun, "s") || strings.HasSuffix(noun, "ch") || strings.HasSuffix(noun, "sh") || strings.HasSuffix(noun, "x"):
		noun += "e"
	case strings.HasSuffix(noun, "ry"):
		noun = strings.TrimSuffix(noun, "y") + "ie"
	}
	return humanize.Comma(int64(n)) + " " + noun + "s"
}

// span is a duration in its two largest units: 2d4h, 3h05m, 2m12s, 8.5s, 350ms.
func span(ns uint64) string {
	d := time.Duration(min(ns, 1<<62))
	day := 24 * time.Hour
	switch {
	case d >= day:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d >= 10*time.Second:
		return fmt.Sprintf("%ds", d/time.Second)
	case d >= time.Second:
		return fmt.Sprintf("%d.%ds", d/time.Second, d%time.Second/(100*time.Millisecond))
	}
	return fmt.Sprintf("%dms", d/time.Millisecond)
}

// shortUUID is the first group of a UUID: enough to tell those of one machine apart. Of
// "MIG-GPU-1a2b3c4d-…/1/0", as old drivers have it, the numbers at the end are needed too.
func shortUUID(uuid string) string {
	uuid, instance, isInstance := strings.Cut(untrusted.Clean(uuid), "/")
	short, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(uuid, "MIG-"), "GPU-"), "-")
	if isInstance {
		short += "/" + instance
	}
	return short
}

func processName(p *ledger.Process) string {
	comm := untrusted.Clean(p.Comm)
	if comm == "" {
		comm = "pid"
	}
	return fmt.Sprintf("%s [%d]", comm, p.PID)
}

func minus(a, b uint64) uint64 {
	if a < b {
		return 0
	}
	return a - b
}
