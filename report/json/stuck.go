// SPDX-License-Identifier: Apache-2.0

package json

import (
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/fragmentation"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// StuckReport is which lines of code keep the cache of one of PyTorch's allocators from the driver:
// a segment goes back only when none of its tensors lives.
type StuckReport struct {
	Process         int              `json:"process"` // index into processes
	PID             uint32           `json:"pid"`
	Device          string           `json:"device"` // "cuda:0"
	GPUUUID         string           `json:"gpu_uuid,omitempty"`
	CacheBytes      uint64           `json:"cache_bytes"`                 // unused in segments allocated since the attach, or in all if the allocator was read
	StuckBytes      uint64           `json:"stuck_bytes"`                 // part of cache_bytes in segments with live tensors
	IdleBytes       uint64           `json:"idle_bytes"`                  // part of cache_bytes in segments without live tensors: at most what torch.cuda.empty_cache() gives back
	SegmentCount    uint64           `json:"segment_count"`               // segments with live tensors and unused memory; each mapping of expandable segments counts
	SegmentBytes    uint64           `json:"segment_bytes"`               // of these segments
	Rows            []StuckRowReport `json:"rows"`                        // by stuck_bytes that each adds, the best first
	MoreBytes       uint64           `json:"more_bytes"`                  // part of stuck_bytes in further rows, and in segments with tensors of many lines; with it the rows add up
	OlderCacheBytes uint64           `json:"older_cache_bytes,omitempty"` // unused in segments from before the attach: what holds those is unknown
	NotSampledBytes uint64           `json:"not_sampled_bytes,omitempty"` // of tensors in these segments whose lines are unknown
	UnlistedBytes   uint64           `json:"unlisted_bytes,omitempty"`    // of live tensors whose place is unknown: they may be in any segment
	OutdatedBytes   uint64           `json:"outdated_bytes,omitempty"`    // of tensors that were freed since they were listed
	Doubts          []string         `json:"doubts,omitempty"`            // the same in words
}

// StuckRowReport is lines of code that hold segments together: if their tensors and those of the
// rows before were freed, torch.cuda.empty_cache() would give segment_bytes back.
type StuckRowReport struct {
	StuckBytes   uint64            `json:"stuck_bytes"` // unused in the segments
	AloneBytes   uint64            `json:"alone_bytes"` // part of stuck_bytes in segments where only these lines have tensors
	SegmentCount uint64            `json:"segment_count"`
	SegmentBytes uint64            `json:"segment_bytes"`
	Lines        []StuckLineReport `json:"lines"`
}

// StuckLineReport is a line of the user's own code with tensors in the segments of a row. Its
// function is "[not sampled]" for tensors whose line is unknown.
type StuckLineReport struct {
	FrameReport
	TensorCount uint64            `json:"tensor_count"`
	TensorBytes uint64            `json:"tensor_bytes"`
	Holders     []HeldShareReport `json:"holders,omitempty"` // who keeps tensor_bytes, largest first, as far as the latest walk found it
}

func stuckReports(s *ledger.Snapshot, st callstack.Stacks, o report.Options) (list []StuckReport) {
	caches := report.StuckCaches(s, st)
	for i := range caches {
		c := &caches[i]
		r := StuckReport{
			Process: c.Process, PID: s.Processes[c.Process].PID, Device: format.Device(c.Device, ledger.Tensor),
			GPUUUID:    untrusted.Clean(report.GPUUUID(s, c.Process, c.Device, ledger.Tensor)),
			CacheBytes: c.Cached, StuckBytes: c.Free, IdleBytes: c.Idle, SegmentCount: c.Segments, SegmentBytes: c.Bytes,
			Rows: []StuckRowReport{}, MoreBytes: c.Rest.Free, OlderCacheBytes: c.Older,
			NotSampledBytes: c.Unsampled, UnlistedBytes: c.Unlisted, OutdatedBytes: c.Outdated, Doubts: c.Doubts(s),
		}
		for k := range c.Rows {
			if k >= o.Limit() {
				r.MoreBytes += c.Rows[k].Free
				continue
			}
			r.Rows = append(r.Rows, stuckRowReport(c, &c.Rows[k]))
		}
		list = append(list, r)
	}
	return list
}

func stuckRowReport(c *report.StuckCache, row *fragmentation.Row) StuckRowReport {
	r := StuckRowReport{StuckBytes: row.Free, AloneBytes: row.Alone, SegmentCount: row.Segments, SegmentBytes: row.Bytes}
	for i := range row.Lines {
		l := &row.Lines[i]
		r.Lines = append(r.Lines, StuckLineReport{
			stackReport([]callstack.Frame{l.Frame})[0], l.Blocks, l.Bytes, shareReports(c.KeptBy(l)),
		})
	}
	return r
}
