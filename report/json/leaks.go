// SPDX-License-Identifier: Apache-2.0

package json

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/words"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// LeaksVersion is the "version" of the JSON report. Fields are only added to a
// version; it rises when one changes its meaning or goes away.
const LeaksVersion = 1

// LeaksReport is the JSON that WriteLeaksJSON writes. Sizes are bytes, names
// ending in _ns are nanoseconds, and what is not known is left out.
type LeaksReport struct {
	Version       int             `json:"version"`
	Host          string          `json:"host,omitempty"`
	Time          time.Time       `json:"time"`        // when the snapshot was taken, UTC
	DurationNS    uint64          `json:"duration_ns"` // how long was traced
	LiveBytes     uint64          `json:"live_bytes"`  // of all selected sites, shown or not, except imported memory and tensors asleep
	LiveCount     uint64          `json:"live_count"`
	HostBytes     uint64          `json:"host_bytes"` // of these: on the host, pinned or as CPU tensors
	HostCount     uint64          `json:"host_count"`
	ManagedBytes  uint64          `json:"managed_bytes"` // of these: managed memory, which NVML counts for no process
	ManagedCount  uint64          `json:"managed_count"`
	EndedBytes    uint64          `json:"ended_bytes"` // of these: freed by the end of their process
	EndedCount    uint64          `json:"ended_count"`
	ImportedBytes uint64          `json:"imported_bytes"` // memory of other processes, not in live_bytes
	ImportedCount uint64          `json:"imported_count"`
	AsleepBytes   uint64          `json:"asleep_bytes"` // of tensors without memory, not in live_bytes
	CacheBytes    uint64          `json:"cache_bytes"`  // kept by PyTorch for later tensors, not in live_bytes
	SiteCount     int             `json:"site_count"`   // selected sites; the first of them are in Sites
	Sites         []SiteReport    `json:"sites"`        // of GPUs, largest first; then of imported, managed and host memory, likewise
	Asleep        []SiteReport    `json:"asleep"`       // sites of tensors without memory, those with most first
	Verdicts      []VerdictReport `json:"verdicts"`     // of each line of code that allocates, the worst first
	Advice        []string        `json:"advice"`       // what to do about it, with the evidence
	Cache         []CacheReport   `json:"cache"`        // who made PyTorch's cache grow, largest first
	Planes        []PlaneReport   `json:"planes"`       // all memory, each byte in one
	Failures      []FailureReport `json:"failures"`
	Processes     []ProcessReport `json:"processes"`
	Releases      []ReleaseReport `json:"releases"` // what was freed without a free of its own
	Pools         []PoolReport    `json:"pools"`
	Tensors       []TensorsReport `json:"tensors"`  // of each process and device whose PyTorch reports them
	Parts         []PartReport    `json:"parts"`    // of NVML's figure for each process and GPU
	Balances      []BalanceReport `json:"balances"` // usage = baseline + live + gap
	GPUs          []GPUReport     `json:"gpus"`
	Losses        LossesReport    `json:"losses"`
	Notes         []string        `json:"notes"`    // losses in words
	Warnings      []string        `json:"warnings"` // everything else that readers should know

	Objects     []ObjectReport      `json:"objects,omitempty"`      // of the driver, by process and kind; their memory is in no other figure but usage
	ContextOnly []ContextOnlyReport `json:"context_only,omitempty"` // processes that allocated no GPU memory while traced, but hold some
}

// SiteReport is a site that holds live memory.
type SiteReport struct {
	Process        int           `json:"process"` // index into processes
	PID            uint32        `json:"pid"`
	Comm           string        `json:"comm,omitempty"`
	Ended          bool          `json:"ended"`              // the process has: figures are those of its end
	Device         string        `json:"device"`             // "cuda:0", "host" (kinds pinned and registered), "cpu" (kind tensor), "unknown"
	GPUUUID        string        `json:"gpu_uuid,omitempty"` //
	Plane          string        `json:"plane"`              // tensor, driver, managed, host
	Kind           string        `json:"kind"`               // device, managed, pinned, registered, async, vmm, array, imported, graph, tensor
	API            string        `json:"api"`
	LiveBytes      uint64        `json:"live_bytes"`
	AsleepBytes    uint64        `json:"asleep_bytes"` // of these: of tensors without memory, which live_bytes of the report leaves out
	LiveCount      uint64        `json:"live_count"`
	AllocatedBytes uint64        `json:"allocated_bytes"` // since the attach
	AllocatedCount uint64        `json:"allocated_count"`
	OldestNS       uint64        `json:"oldest_ns"`               // age of the oldest live allocation; 0 where it is unknown
	GrowthBytes    int64         `json:"growth_bytes"`            // in the second half of the session
	GrowthRate     int64         `json:"growth_bytes_per_minute"` // likewise
	History        []uint64      `json:"history"`                 // live bytes at even steps of the session
	Headline       int           `json:"headline"`                // index into stack: the user's own code
	Stack          []FrameReport `json:"stack"`                   // the CUDA call first
	Owners         []OwnerReport `json:"owners,omitempty"`        // of imported memory: who allocated it, as far as that is traced
	MoreOwners     bool          `json:"more_owners,omitempty"`   // there are more than Owners has
	Incomplete     []string      `json:"incomplete,omitempty"`    // what the figures or the stack lack, as the process used up its share
	MissingCount   uint64        `json:"missing_count,omitempty"` // of allocated_count: too many to follow, in no live figure
	CrowdedCount   uint64        `json:"crowded_count,omitempty"` // allocations of other sites here, for which the process had no site left
}

// FrameReport is one line of a stack.
type FrameReport struct {
	Function string `json:"function"`
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	Library  string `json:"library,omitempty"` // path of the program or library, native frames only
	BuildID  string `json:"build_id,omitempty"`
	Address  uint64 `json:"address,omitempty"` // ELF virtual address
	Language string `json:"language"`          // "python", "native", or "mark": a remark such as [truncated: …]
	Inlined  bool   `json:"inlined,omitempty"` // into the next frame
}

// FailureReport sums the failed allocations of one site with one result.
type FailureReport struct {
	Process   int           `json:"process"`
	PID       uint32        `json:"pid"`
	Comm      string        `json:"comm,omitempty"`
	Device    string        `json:"device"`
	Kind      string        `json:"kind"`
	API       string        `json:"api"`
	Result    int32         `json:"result"` // CUresult or cudaError_t
	Error     string        `json:"error"`
	Count     uint64        `json:"count"`
	Bytes     uint64        `json:"bytes"` // sum of the sizes asked for
	LastBytes uint64        `json:"last_bytes"`
	LastAgoNS uint64        `json:"last_ago_ns"`
	Headline  int           `json:"headline"`
	Stack     []FrameReport `json:"stack"`

	Incomplete []string `json:"incomplete,omitempty"` // as of a site
}

// ProcessReport is one process: a pid between two execs or exits.
type ProcessReport struct {
	PID      uint32          `json:"pid"`
	Comm     string          `json:"comm,omitempty"`
	Exe      string          `json:"exe,omitempty"`
	Ended    bool            `json:"ended"`
	Replaced bool            `json:"replaced,omitempty"` // it ended by an exec: another one with this pid is what it became
	Devices  []string        `json:"devices,omitempty"`  // UUID of each CUDA ordinal, "" for one that is unknown
	Workload *WorkloadReport `json:"workload,omitempty"`
	Totals   []TotalReport   `json:"totals"`

	DeducedBytes uint64 `json:"deduced_bytes,omitempty"` // of allocations whose GPU follows from the growth of NVML's figures only
	SegmentsOnly string `json:"segments_only,omitempty"` // why no tensors of its PyTorch are known

	LostEvents uint64         `json:"lost_events,omitempty"` // of this process, for want of room
	Beyond     []BeyondReport `json:"beyond,omitempty"`      // tables of which it used up its share
}

// BeyondReport says how often a process had no room in a table that all processes share.
type BeyondReport struct {
	Table string `json:"table"`
	Count uint64 `json:"count"`
}

// TotalReport sums a process on one device and of one kind.
type TotalReport struct {
	Device         string `json:"device"`
	Kind           string `json:"kind"`
	LiveBytes      uint64 `json:"live_bytes"`
	LiveCount      uint64 `json:"live_count"`
	AllocatedBytes uint64 `json:"allocated_bytes"`
	AllocatedCount uint64 `json:"allocated_count"`
	PeakBytes      uint64 `json:"peak_bytes"`
	PeakAfterNS    uint64 `json:"peak_after_ns"` // since the attach
}

// BalanceReport compares NVML and the books for one process and GPU.
type BalanceReport struct {
	Process       int    `json:"process"`
	PID           uint32 `json:"pid"`
	Device        string `json:"device"`
	GPUUUID       string `json:"gpu_uuid"`
	UsageBytes    uint64 `json:"usage_bytes"`
	PeakBytes     uint64 `json:"peak_usage_bytes"`
	BaselineBytes uint64 `json:"baseline_bytes"`
	LiveBytes     uint64 `json:"live_bytes"`
	GapBytes      int64  `json:"gap_bytes"`
	IdleBytes     uint64 `json:"idle_bytes"`     // at most so much of the gap is held unused by pools
	ReadingAgeNS  uint64 `json:"reading_age_ns"` // usage_bytes and live_bytes are so old
	SinceBytes    int64  `json:"since_bytes"`    // booked since then
	DoubtBytes    uint64 `json:"doubt_bytes"`    // so much of live_bytes came or went while NVML was read
}

// ReleaseReport sums the allocations of a process that were freed by one cause.
type ReleaseReport struct {
	Process   int    `json:"process"`
	PID       uint32 `json:"pid"`
	Cause     string `json:"cause"` // "context destroy", "context release", "device reset"
	Count     uint64 `json:"count"`
	Bytes     uint64 `json:"bytes"`
	LastAgoNS uint64 `json:"last_ago_ns"`
}

// PoolReport is a stream-ordered memory pool.
type PoolReport struct {
	Process        int    `json:"process"`
	PID            uint32 `json:"pid"`
	Handle         uint64 `json:"handle"` // CUmemoryPool; 0: the pool that the device has from the beginning
	Device         string `json:"device"`
	GPUUUID        string `json:"gpu_uuid,omitempty"`
	Count          uint64 `json:"count"`           // live allocations
	UsedBytes      uint64 `json:"used_bytes"`      // by these
	ReserveBytes   uint64 `json:"reserve_bytes"`   // what it holds at most: the highest used_bytes since the last trim
	ThresholdBytes uint64 `json:"threshold_bytes"` // what it may keep unused where the program synchronizes
	Destroyed      bool   `json:"destroyed"`       // and has allocations left
}

// GPUReport is one device as NVML lists it.
type GPUReport struct {
	Index      int    `json:"index"`
	UUID       string `json:"gpu_uuid"`
	ParentUUID string `json:"parent_uuid,omitempty"` // of the GPU that a MIG instance is part of, with its bytes and its index
	Name       string `json:"name"`
	TotalBytes uint64 `json:"total_bytes"`
	UsedBytes  uint64 `json:"used_bytes"`
}

// LossesReport counts what the books could not take in; see ledger.Stats.
type LossesReport struct {
	Events          uint64            `json:"events"`
	LostEvents      uint64            `json:"lost_events"`
	UnmatchedFrees  uint64            `json:"unmatched_frees"`
	ReusedAddresses uint64            `json:"reused_addresses"`
	Evicted         uint64            `json:"evicted"`
	UnknownSizes    uint64            `json:"unknown_sizes"` // live allocations counted with 0 bytes
	Stacks          uint64            `json:"stacks"`
	WithoutStack    uint64            `json:"without_stack"`
	Missing         map[string]uint64 `json:"missing,omitempty"` // of without_stack, by reason
	Truncated       map[string]uint64 `json:"truncated"`
	Torn            uint64            `json:"torn"`
}

// WriteLeaks writes a LeaksReport: the sites of Leaks, the first o.Top of them with stacks.
func WriteLeaks(w io.Writer, s *ledger.Snapshot, st callstack.Stacks, o report.Options) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(NewLeaks(s, st, o)); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

func NewLeaks(s *ledger.Snapshot, st callstack.Stacks, o report.Options) *LeaksReport {
	list := report.Leaks(s, o)
	gpu, managed, host := report.DivideLeaks(list)
	sum := report.Sum(s, list)
	r := &LeaksReport{
		Version: LeaksVersion, Host: untrusted.Clean(s.Host), Time: s.Wall.UTC(), DurationNS: s.End - s.Begin, SiteCount: len(list),
		LiveBytes: sum.Own.Bytes, LiveCount: sum.Own.Objects, EndedBytes: sum.Ended.Bytes, EndedCount: sum.Ended.Objects,
		ImportedBytes: sum.Imported.Bytes, ImportedCount: sum.Imported.Objects, HostBytes: sum.Host.Bytes, HostCount: sum.Host.Objects,
		ManagedBytes: sum.Managed.Bytes, ManagedCount: sum.Managed.Objects, AsleepBytes: report.AsleepBytes(s),
		Cache: []CacheReport{}, Planes: planeReports(s), Tensors: []TensorsReport{}, Parts: []PartReport{},
		Sites: []SiteReport{}, Asleep: []SiteReport{}, Failures: []FailureReport{}, Processes: []ProcessReport{}, Releases: []ReleaseReport{}, Pools: []PoolReport{},
		Balances: []BalanceReport{}, GPUs: []GPUReport{}, Notes: []string{}, Warnings: []string{}, Losses: lossesReport(&s.Stats),
	}
	for _, list := range [][]ledger.Site{gpu, managed, host} {
		for i := range list[:min(len(list), o.Limit())] {
			r.Sites = append(r.Sites, siteReport(s, st, o, &list[i]))
		}
	}
	asleep := report.AsleepSites(s)
	for _, x := range asleep[:min(len(asleep), o.Limit())] {
		r.Asleep = append(r.Asleep, siteReport(s, st, o, x))
	}
	addTorch(r, s, st, o)
	r.Objects, r.ContextOnly = objectReports(s, st, o), contextOnlyReports(s, st, o)
	r.Verdicts, r.Advice = verdictReports(s, report.Judge(s, st))
	for i := range s.Failures[:min(len(s.Failures), o.Limit())] {
		r.Failures = append(r.Failures, failureReport(s, st, o, &s.Failures[i]))
	}
	for i := range s.Processes {
		r.Processes = append(r.Processes, processReport(s, &s.Processes[i]))
		r.Processes[i].SegmentsOnly = report.SegmentsOnly(s, st, i)
	}
	for _, x := range s.Releases {
		r.Releases = append(r.Releases, ReleaseReport{x.Process, s.Processes[x.Process].PID, words.Cause(x.Cause), x.Objects, x.Bytes, report.Minus(s.End, x.Time)})
	}
	for _, x := range s.Pools {
		r.Pools = append(r.Pools, PoolReport{
			x.Process, s.Processes[x.Process].PID, x.Handle, words.Device(x.Device, ledger.Async), untrusted.Clean(report.GPUUUID(s, x.Process, x.Device, ledger.Async)),
			x.Objects, x.Used, x.Reserve, x.Threshold, x.Destroyed,
		})
	}
	for i := range s.Balances {
		b := &s.Balances[i]
		r.Balances = append(r.Balances, BalanceReport{
			b.Process, s.Processes[b.Process].PID, words.Device(b.Device, ledger.Device), untrusted.Clean(b.UUID), b.Usage, b.Peak, b.Baseline, b.Live, b.Gap, b.Idle,
			report.Minus(s.End, b.Time), b.Since, b.Doubt,
		})
	}
	for _, g := range s.GPUs {
		r.GPUs = append(r.GPUs, GPUReport{g.Index, untrusted.Clean(g.UUID), untrusted.Clean(g.Parent), untrusted.Clean(g.Name), g.Total, g.Used})
	}
	for _, d := range report.Doubts(s) {
		if d.At == report.AtTitle {
			r.Warnings = append(r.Warnings, d.Text)
		} else {
			r.Notes = append(r.Notes, d.Text)
		}
	}
	return r
}

func siteReport(s *ledger.Snapshot, st callstack.Stacks, o report.Options, x *ledger.Site) SiteReport {
	p := &s.Processes[x.Process]
	stack := frames.Visible(st, x.Stack, x.API)
	oldest, _ := report.Age(s, x)
	return SiteReport{
		Owners: ownerReports(s, st, o, x), MoreOwners: x.MoreOwners,
		Incomplete: report.Marks(s, st, x), MissingCount: x.Evicted, CrowdedCount: x.Crowded,
		Process: x.Process, PID: p.PID, Comm: untrusted.Clean(p.Comm), Ended: p.End != 0,
		Device: words.Device(x.Device, x.Kind), GPUUUID: untrusted.Clean(report.GPUUUID(s, x.Process, x.Device, x.Kind)),
		Plane: report.WholePlane(x), Kind: words.Kind(x.Kind), API: untrusted.Clean(x.API),
		LiveBytes: x.LiveBytes, LiveCount: x.LiveObjects, AsleepBytes: x.Asleep, AllocatedBytes: x.AllocBytes, AllocatedCount: x.AllocObjects,
		OldestNS: oldest, GrowthBytes: x.Growth, GrowthRate: report.PerMinute(x.Growth, (s.End-s.Begin)/2),
		History: append([]uint64{}, x.History...), Headline: frames.Headline(stack), Stack: stackReport(stack),
	}
}

// OwnerReport is who allocated imported memory.
type OwnerReport struct {
	Process  int           `json:"process"` // index into processes
	PID      uint32        `json:"pid"`
	Comm     string        `json:"comm,omitempty"`
	API      string        `json:"api"`
	Headline int           `json:"headline"`
	Stack    []FrameReport `json:"stack"`
}

func ownerReports(s *ledger.Snapshot, st callstack.Stacks, o report.Options, x *ledger.Site) (list []OwnerReport) {
	for i := range x.Owners {
		w := &x.Owners[i]
		p := &s.Processes[w.Process]
		stack := frames.Visible(st, w.Stack, w.API)
		list = append(list, OwnerReport{
			Process: w.Process, PID: p.PID, Comm: untrusted.Clean(p.Comm), API: untrusted.Clean(w.API),
			Headline: frames.Headline(stack), Stack: stackReport(stack),
		})
	}
	return list
}
