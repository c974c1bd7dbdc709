// SPDX-License-Identifier: Apache-2.0

package json

import (
	"fmt"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/pools"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/caching"
)

// AllocatorReport is what PyTorch's caching allocator of one device has, as it was read from
// outside:
//
//	reserved_bytes = allocated_bytes + cache_bytes
//	cache_bytes    = the bytes of all kinds
type AllocatorReport struct {
	Process        int               `json:"process"` // index into processes
	PID            uint32            `json:"pid"`
	Device         string            `json:"device"` // "cuda:0"
	GPUUUID        string            `json:"gpu_uuid,omitempty"`
	AgeNs          uint64            `json:"age_ns"`              // from the reading to this moment
	Exact          bool              `json:"exact"`               // the allocator was at rest while it was read
	Settled        bool              `json:"settled,omitempty"`   // it was not, but its reports settled what was read: allocated_bytes and reserved_bytes are right
	OffBytes       uint64            `json:"off_bytes,omitempty"` // if neither: by how much allocated_bytes may be off
	ReservedBytes  uint64            `json:"reserved_bytes"`
	AllocatedBytes uint64            `json:"allocated_bytes"`
	RequestedBytes uint64            `json:"requested_bytes"` // part of allocated_bytes that the program asked for; the rest is rounding
	CacheBytes     uint64            `json:"cache_bytes"`
	Kinds          []CacheKindReport `json:"kinds"`              // what the cache is made of
	LargestFree    uint64            `json:"largest_free_bytes"` // longest run of free bytes in one segment
	PeakAllocated  uint64            `json:"peak_allocated_bytes"`
	PeakReserved   uint64            `json:"peak_reserved_bytes"`
	Retries        uint64            `json:"retries"`            // since the process began: cudaMalloc failed, and PyTorch freed its cache and tried again
	OutOfMemory    uint64            `json:"out_of_memory"`      // since the process began: errors that the program got
	Repaired       uint64            `json:"repaired,omitempty"` // allocations and frees of the process whose event was lost, and that readings showed
	RepairedBytes  uint64            `json:"repaired_bytes,omitempty"`
	Arenas         []ArenaReport     `json:"arenas"`                   // the largest first, at most as many as sites
	Captures       []CaptureReport   `json:"graph_captures,omitempty"` // by pool and time, at most as many as sites
}

// CacheKindReport is the part of a cache that is there for one reason.
type CacheKindReport struct {
	Kind  report.CacheKind `json:"kind"` // "idle", "held", "small", "streams", "pools" or "pending"
	Bytes uint64           `json:"bytes"`
}

// ArenaReport is what shares free memory: one pool, one stream, small or large blocks.
type ArenaReport struct {
	Pool           string `json:"pool"`                // "default", "CUDA graph 3", "graph pool 1", "MemPool 2"
	PoolLine       string `json:"pool_line,omitempty"` // of a private pool: the line that made the oldest segment that it still has, if it was seen
	Stream         string `json:"stream"`              // "default", "stream 1"
	StreamHandle   string `json:"stream_handle"`       // hexadecimal
	Small          bool   `json:"small"`               // requests of at most 1 MiB
	SegmentCount   uint64 `json:"segment_count"`
	BlockCount     uint64 `json:"block_count"` // live
	ReservedBytes  uint64 `json:"reserved_bytes"`
	AllocatedBytes uint64 `json:"allocated_bytes"`
	OlderBytes     uint64 `json:"older_bytes"` // part of allocated_bytes from before the attach
	FreeBytes      uint64 `json:"free_bytes"`
	IdleBytes      uint64 `json:"idle_bytes"` // part of free_bytes that goes back with torch.cuda.empty_cache()
	LargestFree    uint64 `json:"largest_free_bytes"`
}

// CaptureReport is what a pool took from the driver for one CUDA graph. A graph that found room in
// its pool has none.
type CaptureReport struct {
	Pool  string `json:"pool"`  // "CUDA graph 3"
	Line  string `json:"line"`  // that made the graph executable, where its capture ended
	AtNs  uint64 `json:"at_ns"` // when, since the session began
	Bytes uint64 `json:"bytes"`
}

// maxPoolLine is the columns of a PoolLine.
const maxPoolLine = 200

func allocatorReports(s *ledger.Snapshot, st callstack.Stacks, o report.Options) (list []AllocatorReport) {
	for i := range s.Caches {
		c := &s.Caches[i]
		r := AllocatorReport{
			Process: c.Process, PID: s.Processes[c.Process].PID, Device: format.Device(c.Index, ledger.Tensor),
			GPUUUID: untrusted.Clean(report.GPUUUID(s, c.Process, c.Index, ledger.Tensor)),
			AgeNs:   report.Minus(s.End, c.Time), Exact: c.Exact, Settled: c.Settled, OffBytes: c.OffBytes,
			ReservedBytes: c.Reserved, AllocatedBytes: c.Allocated, RequestedBytes: c.Requested, CacheBytes: c.Cached, LargestFree: c.LargestFree,
			PeakAllocated: c.Counters.Allocated.Peak, PeakReserved: c.Counters.Reserved.Peak, Retries: c.Counters.Retries, OutOfMemory: c.Counters.OutOfMemory,
			Repaired: c.Repaired, RepairedBytes: c.RepairedBytes,
			Arenas: []ArenaReport{},
		}
		for _, k := range report.CacheKinds {
			r.Kinds = append(r.Kinds, CacheKindReport{k, k.Of(&c.Cache)})
		}
		streams := report.StreamNames(&c.Cache)
		lines := map[caching.PoolID]string{}
		of := pools.Of(c, st)
		for _, x := range of.Lines() {
			lines[x.Pool] = untrusted.Clean(frames.Text(&x.Frame, maxPoolLine))
		}
		for k := range c.Arenas[:min(len(c.Arenas), o.Limit())] {
			a := &c.Arenas[k]
			r.Arenas = append(r.Arenas, ArenaReport{
				Pool: of.Name(a.Pool), PoolLine: lines[a.Pool], Stream: streams[a.Stream], StreamHandle: fmt.Sprintf("%#x", a.Stream), Small: a.Small,
				SegmentCount: a.Segments, BlockCount: a.Blocks, ReservedBytes: a.Reserved, AllocatedBytes: a.Allocated, OlderBytes: a.Older,
				FreeBytes: a.Free, IdleBytes: a.Idle, LargestFree: a.LargestFree,
			})
		}
		r.Captures = captureReports(s, of, st, o.Limit())
		list = append(list, r)
	}
	return list
}

func captureReports(s *ledger.Snapshot, of *pools.Pools, st callstack.Stacks, limit int) (list []CaptureReport) {
	captures := of.Captures()
	for i := range captures[:min(len(captures), limit)] {
		x := &captures[i]
		stack := frames.Visible(st, x.Stack, x.API)
		line := untrusted.Clean(frames.Text(&stack[frames.Headline(stack)], maxPoolLine))
		list = append(list, CaptureReport{of.Name(x.Pool), line, report.Minus(x.Time, s.Begin), x.Bytes})
	}
	return list
}
