// SPDX-License-Identifier: Apache-2.0

package json

import (
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/words"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// PlaneReport sums what one layer has in all processes.
type PlaneReport struct {
	Plane      string `json:"plane"`       // tensor, cache, driver, before, unexplained, host, managed, asleep
	Bytes      int64  `json:"bytes"`       // of GPUs; negative only where figures do not fit together
	ApartBytes int64  `json:"apart_bytes"` // of neither: managed memory, tensors asleep
	HostBytes  int64  `json:"host_bytes"`  // of the host
}

// PartReport is what makes up NVML's figure for one process and GPU: usage_bytes is the sum of the others, and usage_bytes plus since_bytes of the balance.
type PartReport struct {
	Process          int    `json:"process"`
	PID              uint32 `json:"pid"`
	Device           string `json:"device"`
	GPUUUID          string `json:"gpu_uuid"`
	UsageBytes       uint64 `json:"usage_bytes"`
	TensorBytes      uint64 `json:"tensor_bytes"`
	CacheBytes       uint64 `json:"cache_bytes"`  // of segments of PyTorch's allocator, not given out
	DriverBytes      uint64 `json:"driver_bytes"` // other memory taken from CUDA
	OlderTensorBytes uint64 `json:"older_tensor_bytes"`
	OlderCacheBytes  uint64 `json:"older_cache_bytes"` // likewise from before the attach
	OlderOtherBytes  uint64 `json:"older_other_bytes"` // likewise: context, modules, other allocations
	UnexplainedBytes int64  `json:"unexplained_bytes"`
	UnplacedBytes    uint64 `json:"unplaced_bytes,omitempty"` // a share of what the process allocated on GPUs that are not known
}

// TensorsReport is what PyTorch's allocator of one process has on one device.
type TensorsReport struct {
	Process         int    `json:"process"`
	PID             uint32 `json:"pid"`
	Device          string `json:"device"` // "cuda:0", "cpu"
	GPUUUID         string `json:"gpu_uuid,omitempty"`
	AllocatorBytes  uint64 `json:"allocator_bytes"` // in tensors, as the allocator says itself
	ReservedBytes   uint64 `json:"reserved_bytes"`  // in segments, likewise
	PeakBytes       uint64 `json:"peak_bytes"`      // highest allocator_bytes
	PeakAfterNS     uint64 `json:"peak_after_ns"`   // since the attach
	LiveBytes       uint64 `json:"live_bytes"`      // allocated since the attach
	LiveCount       uint64 `json:"live_count"`
	AllocatedBytes  uint64 `json:"allocated_bytes"` // likewise, freed or not
	AllocatedCount  uint64 `json:"allocated_count"`
	SampledCount    uint64 `json:"sampled_count"`      // of live_count: those from which sites are estimated
	SampleBytes     uint64 `json:"sample_bytes"`       // one in so many bytes, 0: each
	SampleFewer     uint64 `json:"sample_fewer"`       // but at most so many times fewer, where too many stacks a second were needed; 1: never
	ErrorBytes      uint64 `json:"error_bytes"`        // standard error of the largest site
	OlderBytes      uint64 `json:"older_bytes"`        // of allocator_bytes: older than the attach
	OlderCacheBytes uint64 `json:"older_cache_bytes"`  // unused in segments older than the attach
	AsleepBytes     uint64 `json:"asleep_bytes"`       // of live_bytes: without memory, which was unmapped
	OlderAsleep     uint64 `json:"older_asleep_bytes"` // of older_bytes, likewise
	SegmentBytes    uint64 `json:"segment_bytes"`      // of segments allocated since the attach
	CacheBytes      uint64 `json:"cache_bytes"`        // unused in those
	FreeRunBytes    uint64 `json:"free_run_bytes"`     // the longest in those: what a request finds without growing
}

// CacheReport is a site of segments of PyTorch's allocator.
type CacheReport struct {
	Process      int           `json:"process"`
	PID          uint32        `json:"pid"`
	Comm         string        `json:"comm,omitempty"`
	Device       string        `json:"device"`
	GPUUUID      string        `json:"gpu_uuid,omitempty"`
	Kind         string        `json:"kind"`
	API          string        `json:"api"`
	CacheBytes   uint64        `json:"cache_bytes"` // held for later tensors
	SegmentBytes uint64        `json:"segment_bytes"`
	SegmentCount uint64        `json:"segment_count"`
	Headline     int           `json:"headline"`
	Stack        []FrameReport `json:"stack"`
}

func planeReports(s *ledger.Snapshot) []PlaneReport {
	list := []PlaneReport{{Plane: report.PlaneTensor}, {Plane: report.PlaneCache}, {Plane: report.PlaneDriver}, {Plane: report.PlaneBefore}, {Plane: report.PlaneUnexplained}, {Plane: report.PlaneHost}, {Plane: report.PlaneManaged}, {Plane: report.PlaneAsleep}}
	for _, h := range report.Holdings(s) {
		for i := range list {
			switch r := &list[i]; {
			case r.Plane != h.Plane:
			case h.OnHost():
				r.HostBytes += h.Live
			case h.Apart():
				r.ApartBytes += h.Live
			default:
				r.Bytes += h.Live
			}
		}
	}
	return list
}

// addTorch adds what there is of PyTorch's allocator, and the parts of usage.
func addTorch(r *LeaksReport, s *ledger.Snapshot, st callstack.Stacks, o report.Options) {
	cache, sum := report.CacheSites(s)
	r.CacheBytes = sum
	for _, x := range cache[:min(len(cache), o.Limit())] {
		p := &s.Processes[x.Process]
		stack := frames.Visible(st, x.Stack, x.API)
		r.Cache = append(r.Cache, CacheReport{
			x.Process, p.PID, untrusted.Clean(p.Comm), words.Device(x.Device, x.Kind), untrusted.Clean(report.GPUUUID(s, x.Process, x.Device, x.Kind)),
			words.Kind(x.Kind), untrusted.Clean(x.API), report.CacheBytes(x), x.LiveBytes, x.LiveObjects, frames.Headline(stack), stackReport(stack),
		})
	}
	for i := range s.Tensors {
		t := &s.Tensors[i]
		r.Tensors = append(r.Tensors, TensorsReport{
			t.Process, s.Processes[t.Process].PID, words.Device(t.Device, ledger.Tensor), untrusted.Clean(report.GPUUUID(s, t.Process, t.Device, ledger.Tensor)),
			t.Allocated, t.Reserved, t.Peak, report.Minus(t.PeakTime, s.Begin), t.LiveBytes, t.LiveObjects, t.AllocBytes, t.AllocObjects,
			t.Sampled, s.Sampling.Mean, 1 << min(t.Halvings, 62), t.Error, t.Older, t.OlderCached, t.Asleep, t.OlderAsleep, t.Segments, t.Cached, t.LargestFree,
		})
	}
	for _, x := range s.Parts() {
		r.Parts = append(r.Parts, PartReport{
			x.Process, s.Processes[x.Process].PID, words.Device(x.Device, ledger.Device), untrusted.Clean(x.UUID),
			report.PartUsage(&x), x.Tensors, x.Cached, x.Driver, x.OlderAllocated, x.OlderCached, x.Foreign, x.Unexplained, x.Unplaced,
		})
	}
}
