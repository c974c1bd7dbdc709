// SPDX-License-Identifier: Apache-2.0

package json

import (
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// PlaneReport sums one plane over all processes.
type PlaneReport struct {
	Plane      string `json:"plane"`       // tensor, cache, driver, before, unexplained, host, managed, system, asleep, imported
	Bytes      int64  `json:"bytes"`       // on GPUs
	ApartBytes int64  `json:"apart_bytes"` // managed and system-allocated memory, tensors asleep, and imported memory
	HostBytes  int64  `json:"host_bytes"`  // on the host
}

// PartReport is what makes up NVML's figure for one process and GPU: usage_bytes is the sum of the
// others, and usage_bytes plus since_bytes of the balance.
type PartReport struct {
	Process          int    `json:"process"`
	PID              uint32 `json:"pid"`
	Device           string `json:"device"`
	GPUUUID          string `json:"gpu_uuid"`
	UsageBytes       uint64 `json:"usage_bytes"`
	TensorBytes      uint64 `json:"tensor_bytes"`
	CacheBytes       uint64 `json:"cache_bytes"`              // unused in segments of PyTorch's allocator
	DriverBytes      uint64 `json:"driver_bytes"`             // other memory taken from CUDA
	InternalBytes    uint64 `json:"internal_bytes,omitempty"` // part of driver_bytes: what the driver took for itself, with --driver-objects
	RoundingBytes    uint64 `json:"rounding_bytes"`           // held by the driver for allocations since the attach beyond their bytes
	UntracedBytes    uint64 `json:"untraced_bytes"`           // tensors that were or may have been allocated while tensors were not traced
	OlderTensorBytes uint64 `json:"older_tensor_bytes"`
	OlderCacheBytes  uint64 `json:"older_cache_bytes"` // PyTorch's cache from before the attach
	OlderOtherBytes  uint64 `json:"older_other_bytes"` // CUDA context, modules and other allocations from before the attach
	UnexplainedBytes uint64 `json:"unexplained_bytes"`
	BeyondBytes      uint64 `json:"beyond_bytes"`             // what the others had beyond NVML's figure, which was taken off them: in no sum
	UnplacedBytes    uint64 `json:"unplaced_bytes,omitempty"` // share of the process's allocations on unknown GPUs
	UnlistedBytes    uint64 `json:"unlisted_bytes,omitempty"` // at least so much is checkpointed or unknown, as NVML no longer lists the process: in no sum

	OlderHolders []HeldShareReport `json:"older_tensor_holders,omitempty"` // who keeps older_tensor_bytes; they add up to it
}

// TensorsReport is what PyTorch's allocator of one process has on one device.
type TensorsReport struct {
	Process         int    `json:"process"`
	PID             uint32 `json:"pid"`
	Device          string `json:"device"` // "cuda:0", "cpu"
	GPUUUID         string `json:"gpu_uuid,omitempty"`
	AllocatorBytes  uint64 `json:"allocator_bytes"` // in tensors, from the allocator's own totals
	ReservedBytes   uint64 `json:"reserved_bytes"`  // in segments, from the allocator's own totals
	PeakBytes       uint64 `json:"peak_bytes"`      // highest allocator_bytes
	PeakAfterNS     uint64 `json:"peak_after_ns"`   // since the attach
	LiveBytes       uint64 `json:"live_bytes"`      // allocated since the attach
	LiveCount       uint64 `json:"live_count"`
	AllocatedBytes  uint64 `json:"allocated_bytes"` // since the attach, freed or not
	AllocatedCount  uint64 `json:"allocated_count"`
	SampledCount    uint64 `json:"sampled_count"`      // part of live_count from which sites are estimated
	SampleBytes     uint64 `json:"sample_bytes"`       // one tensor in this many bytes is sampled on average; 0: every tensor
	SampleFewer     uint64 `json:"sample_fewer"`       // factor by which the sample was reduced at most, because of too many stacks per second; 1: never
	ErrorBytes      uint64 `json:"error_bytes"`        // standard error of the largest site
	OlderBytes      uint64 `json:"older_bytes"`        // part of allocator_bytes from before the attach
	UntracedBytes   uint64 `json:"untraced_bytes"`     // part of allocator_bytes that was or may have been allocated while tensors were not traced
	OlderCacheBytes uint64 `json:"older_cache_bytes"`  // unused in segments from before the attach
	AsleepBytes     uint64 `json:"asleep_bytes"`       // part of live_bytes whose memory was unmapped
	OlderAsleep     uint64 `json:"older_asleep_bytes"` // part of older_bytes whose memory was unmapped
	SegmentBytes    uint64 `json:"segment_bytes"`      // of segments allocated since the attach
	CacheBytes      uint64 `json:"cache_bytes"`        // unused in segments since the attach
	FreeRunBytes    uint64 `json:"free_run_bytes"`     // largest free run in segments since the attach
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
	CacheBytes   uint64        `json:"cache_bytes"` // unused in the segments of this site
	SegmentBytes uint64        `json:"segment_bytes"`
	SegmentCount uint64        `json:"segment_count"`
	Headline     int           `json:"headline"`
	Stack        []FrameReport `json:"stack"`
}

func planeReports(s *ledger.Snapshot) []PlaneReport {
	var list []PlaneReport
	for _, plane := range report.Planes() {
		list = append(list, PlaneReport{Plane: plane})
	}
	for _, h := range report.Holdings(s) {
		for i := range list {
			switch r := &list[i]; {
			case r.Plane != h.Plane:
			case h.Plane == report.PlaneImported:
				r.ApartBytes += int64(h.Site.LiveBytes)
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
func addTorch(r *LeaksReport, s *ledger.Snapshot, st callstack.Stacks, o report.Options, kept []*report.Kept) {
	cache, sum := report.CacheSites(s)
	r.CacheBytes = sum
	for _, x := range cache[:min(len(cache), o.Limit())] {
		p := &s.Processes[x.Process]
		stack := frames.Visible(st, x.Stack, x.API)
		r.Cache = append(r.Cache, CacheReport{
			x.Process, p.PID, untrusted.Clean(p.Comm), format.Device(x.Device, x.Kind), untrusted.Clean(report.GPUUUID(s, x.Process, x.Device, x.Kind)),
			format.Kind(x.Kind), untrusted.Clean(x.API), report.CacheBytes(x), x.LiveBytes, x.LiveObjects, frames.Headline(stack), stackReport(stack),
		})
	}
	for i := range s.Tensors {
		t := &s.Tensors[i]
		r.Tensors = append(r.Tensors, TensorsReport{
			t.Process, s.Processes[t.Process].PID, format.Device(t.Device, ledger.Tensor), untrusted.Clean(report.GPUUUID(s, t.Process, t.Device, ledger.Tensor)),
			t.Allocated, t.Reserved, t.Peak, report.Minus(t.PeakTime, s.Begin), t.LiveBytes, t.LiveObjects, t.AllocBytes, t.AllocObjects,
			t.Sampled, s.Sampling.Mean, 1 << min(t.Halvings, 62), t.Error, t.Older - t.Untraced, t.Untraced, t.OlderCached, t.Asleep, t.OlderAsleep, t.Segments, t.Cached, t.LargestFree,
		})
	}
	for _, x := range s.Parts() {
		r.Parts = append(r.Parts, PartReport{
			x.Process, s.Processes[x.Process].PID, format.Device(x.Device, ledger.Device), untrusted.Clean(x.UUID),
			report.PartUsage(&x), x.Tensors, x.Cached, x.Driver, x.Internal, x.Rounding, x.Untraced, x.OlderAllocated, x.OlderCached, x.Foreign, x.Unexplained, x.Beyond(), x.Unplaced, x.Unlisted,
			olderHolders(s, kept, &x),
		})
	}
}
