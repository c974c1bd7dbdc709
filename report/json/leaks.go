// SPDX-License-Identifier: Apache-2.0

package json

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// LeaksVersion is the "version" of the JSON report. Fields are only added to a
// version; it rises when one changes its meaning or goes away.
const LeaksVersion = 1

// LeaksReport is the JSON that WriteLeaks writes. Sizes are bytes, names
// ending in _ns are nanoseconds, and unknown values are left out.
type LeaksReport struct {
	Version       int             `json:"version"`
	Host          string          `json:"host,omitempty"`
	Time          time.Time       `json:"time"`        // when the snapshot was taken, UTC
	DurationNS    uint64          `json:"duration_ns"` // length of the session up to this moment
	LiveBytes     uint64          `json:"live_bytes"`  // of all selected sites, shown or not, except imported memory and tensors asleep
	LiveCount     uint64          `json:"live_count"`
	HostBytes     uint64          `json:"host_bytes"` // part of live_bytes on the host: pinned memory and tensors in shared memory
	HostCount     uint64          `json:"host_count"`
	ManagedBytes  uint64          `json:"managed_bytes"` // part of live_bytes: managed memory, which NVML counts for no process
	ManagedCount  uint64          `json:"managed_count"`
	EndedBytes    uint64          `json:"ended_bytes"` // part of live_bytes that was freed when its process ended
	EndedCount    uint64          `json:"ended_count"`
	ImportedBytes uint64          `json:"imported_bytes"` // memory of other processes, not in live_bytes
	ImportedCount uint64          `json:"imported_count"`
	AsleepBytes   uint64          `json:"asleep_bytes"` // of tensors without physical memory; not in live_bytes
	CacheBytes    uint64          `json:"cache_bytes"`  // unused memory that PyTorch keeps for later tensors; not in live_bytes
	SiteCount     int             `json:"site_count"`   // selected sites; the largest are in sites
	Lines         []LineReport    `json:"lines"`        // the selected sites by line of code, in the order of sites
	Sites         []SiteReport    `json:"sites"`        // largest first: first of GPUs, then of imported memory, managed memory, and the host
	Asleep        []SiteReport    `json:"asleep"`       // sites of tensors without physical memory, largest first
	Verdicts      []VerdictReport `json:"verdicts"`     // of each line of code that allocates, the worst first
	Advice        []string        `json:"advice"`       // remedies, with the evidence
	Cache         []CacheReport   `json:"cache"`        // sites that made PyTorch's cache grow, largest first
	Planes        []PlaneReport   `json:"planes"`       // all memory, each byte in one
	Failures      []FailureReport `json:"failures"`
	Processes     []ProcessReport `json:"processes"`
	Releases      []ReleaseReport `json:"releases"` // allocations that were freed together, without a free of their own
	Pools         []PoolReport    `json:"pools"`
	Tensors       []TensorsReport `json:"tensors"`  // for each process and device whose PyTorch reports tensors
	Parts         []PartReport    `json:"parts"`    // parts of NVML's figure for each process and GPU
	Balances      []BalanceReport `json:"balances"` // usage = baseline + live + gap
	System        []SystemReport  `json:"system,omitempty"`
	GPUs          []GPUReport     `json:"gpus"`
	Losses        LossesReport    `json:"losses"`
	Notes         []string        `json:"notes"`    // losses in words
	Warnings      []string        `json:"warnings"` // other warnings

	Objects     []ObjectReport      `json:"objects,omitempty"`      // driver objects by process and kind; only usage_bytes includes their memory
	ContextOnly []ContextOnlyReport `json:"context_only,omitempty"` // processes that allocated no GPU memory while traced, but hold some
	Holders     []KeptReport        `json:"holders,omitempty"`      // who keeps the memory of each process that was walked
	Allocators  []AllocatorReport   `json:"allocators,omitempty"`   // PyTorch's allocators that were read, for each process and device
	Growth      []GPUGrowthReport   `json:"growth,omitempty"`       // what each GPU is used for and what of it grows, those that grow first
	Steps       []StepsReport       `json:"steps,omitempty"`        // the steps of trainings, for each process and GPU
	Joined      []JoinedReport      `json:"joined,omitempty"`       // verdicts on the same line in several processes of a job, the worst first
	Waste       []WasteReport       `json:"waste,omitempty"`        // what could be freed, as walks proved
	Stuck       []StuckReport       `json:"stuck,omitempty"`        // which lines keep PyTorch's cache from the driver, the allocator with the most first
}

// SiteReport is a site that holds live memory.
type SiteReport struct {
	Process        int           `json:"process"` // index into processes
	PID            uint32        `json:"pid"`
	Comm           string        `json:"comm,omitempty"`
	Ended          bool          `json:"ended"`              // the process has ended; figures are of its end
	Device         string        `json:"device"`             // "cuda:0", "host" (kinds pinned and registered), "cpu" (kind tensor), "unknown"
	GPUUUID        string        `json:"gpu_uuid,omitempty"` //
	Plane          string        `json:"plane"`              // tensor, driver, managed, host, imported
	Kind           string        `json:"kind"`               // device, managed, pinned, registered, async, vmm, array, imported, graph, tensor
	API            string        `json:"api"`
	LiveBytes      uint64        `json:"live_bytes"`
	AsleepBytes    uint64        `json:"asleep_bytes"` // part of live_bytes: tensors without memory, which the report's live_bytes excludes
	LiveCount      uint64        `json:"live_count"`
	AllocatedBytes uint64        `json:"allocated_bytes"` // since the attach
	AllocatedCount uint64        `json:"allocated_count"`
	OldestNS       uint64        `json:"oldest_ns"`               // age of the oldest live allocation; 0 where it is unknown
	GrowthBytes    int64         `json:"growth_bytes"`            // in the second half of the session, or of a process that began in it, at most in the last hour; by low-water marks
	GrowthRate     int64         `json:"growth_bytes_per_minute"` // likewise
	History        []uint64      `json:"history"`                 // live bytes at even steps of the session, or of a process that began in its second half
	Headline       int           `json:"headline"`                // index into stack: the user's own code; of a leak, the innermost line that tells it from what does not leak
	Stack          []FrameReport `json:"stack"`                   // innermost frame, the CUDA call, first
	Owners         []OwnerReport `json:"owners,omitempty"`        // of imported memory: who allocated it, if traced
	MoreOwners     bool          `json:"more_owners,omitempty"`   // there are more owners than listed
	Incomplete     []string      `json:"incomplete,omitempty"`    // what the figures or the stack lack because the process used up its share
	MissingCount   uint64        `json:"missing_count,omitempty"` // part of allocated_count that vramprof could not track; in no live figure
	CrowdedCount   uint64        `json:"crowded_count,omitempty"` // allocations of other sites counted here, because the process used up its share of sites

	Holders []HeldShareReport `json:"holders,omitempty"` // who keeps live_bytes, largest first, as far as the latest walk found it
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
	RoundingBytes uint64 `json:"rounding_bytes"`     // held by the driver for live allocations and pools beyond their bytes; usage_bytes is the sum of baseline, live, rounding and gap
	IdleBytes     uint64 `json:"idle_bytes"`         // at most this much of rounding_bytes is uncertain, mostly unused memory of pools
	ReadingAgeNS  uint64 `json:"reading_age_ns"`     // age of usage_bytes and live_bytes
	SinceBytes    int64  `json:"since_bytes"`        // change since the reading
	DoubtBytes    uint64 `json:"doubt_bytes"`        // part of live_bytes that was allocated or freed while NVML was read
	Unlisted      bool   `json:"unlisted,omitempty"` // NVML no longer lists the running process, which holds memory: it is checkpointed or unknown
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
	Count          uint64 `json:"count"`            // live allocations
	UsedBytes      uint64 `json:"used_bytes"`       // in live allocations
	ReserveBytes   uint64 `json:"reserve_bytes"`    // the highest used_bytes since the last trim
	LeastBytes     uint64 `json:"least_held_bytes"` // minimum that the driver holds for it, in chunks of 32 MiB
	HeldBytes      uint64 `json:"held_bytes"`       // maximum
	ThresholdBytes uint64 `json:"threshold_bytes"`  // unused memory that it may keep when the program synchronizes
	Destroyed      bool   `json:"destroyed"`        // destroyed, but has live allocations
}

// GPUReport is one device as NVML lists it.
type GPUReport struct {
	Index      int     `json:"index"`
	UUID       string  `json:"gpu_uuid"`
	ParentUUID string  `json:"parent_uuid,omitempty"` // UUID of the GPU that a MIG instance belongs to; bytes and index are that GPU's
	Name       string  `json:"name"`
	TotalBytes uint64  `json:"total_bytes"`
	UsedBytes  uint64  `json:"used_bytes"`                // by all processes: NVML's last reading, corrected by what was booked since
	Integrated bool    `json:"integrated,omitempty"`      // it shares the host's memory: total_bytes is MemTotal, used_bytes that minus MemAvailable
	Addressing string  `json:"addressing_mode,omitempty"` // of memory that the system allocates, as NVML reports it: ATS, HMM, none
	Node       *uint32 `json:"numa_node,omitempty"`       // that the GPU's memory is, as NVML reports it
}

// SystemReport is memory of a process that the system allocated on the NUMA node of a GPU, such as
// malloc's. It is in no sum.
type SystemReport struct {
	Process int    `json:"process"`
	PID     uint32 `json:"pid"`
	Device  string `json:"device"`
	GPUUUID string `json:"gpu_uuid"`
	Bytes   uint64 `json:"bytes"`
	AgeNS   uint64 `json:"age_ns"`             // time since it was read
	AtLeast bool   `json:"at_least,omitempty"` // the list of the process's memory was too long
}

// TracingReport is how much of a thread's time the probe on PyTorch's reports of tensors took.
type TracingReport struct {
	ReportNS uint64      `json:"report_ns"`          // of a thread per report
	Session  ShareReport `json:"session"`            // of the process with the highest share since its first report
	Highest  ShareReport `json:"highest"`            // of the process with the highest share within 10 s
	Budget   float64     `json:"budget,omitempty"`   // limit of the share
	AwayNS   uint64      `json:"away_ns,omitempty"`  // for which the probe was detached from AwayPID, of Paused processes the longest
	AwayPID  uint32      `json:"away_pid,omitempty"` // 0: from all
	Paused   uint32      `json:"paused_processes,omitempty"`
}

// ShareReport is what the reports of a process took of the time of one thread.
type ShareReport struct {
	PID     uint32  `json:"pid"`
	Share   float64 `json:"share"` // 1 is all of it
	Reports uint64  `json:"reports"`
	SpanNS  uint64  `json:"span_ns"` // in which they came
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

// NewLeaks returns what WriteLeaks writes.
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
	kept, j := report.KeptBy(s), report.Judge(s, st)
	r.Lines = append([]LineReport{}, lineReports(s, st, j, o, gpu, managed, host)...)
	for _, list := range [][]ledger.Site{gpu, managed, host} {
		for i := range list[:min(len(list), o.Limit())] {
			r.Sites = append(r.Sites, siteReport(s, st, j, o, kept, &list[i]))
		}
	}
	asleep := report.AsleepSites(s)
	for _, x := range asleep[:min(len(asleep), o.Limit())] {
		r.Asleep = append(r.Asleep, siteReport(s, st, j, o, kept, x))
	}
	addTorch(r, s, st, o, kept)
	r.Holders, r.Stuck, r.Allocators = keptReports(s, kept), stuckReports(s, st, o), allocatorReports(s, st, o)
	r.Objects, r.ContextOnly = objectReports(s, st, o), contextOnlyReports(s, st, o)
	r.Verdicts, r.Advice = verdictReports(s, st, j, kept, o)
	r.Joined = joinedReports(s, j, o)
	r.Growth = NewGrowth(s, st, j)
	for i := range s.Processes {
		r.Steps = append(r.Steps, stepsReports(s, i, o)...)
		r.Waste = append(r.Waste, wasteReports(s.Processes[i].PID, report.WasteOf(s, i))...)
	}
	for i := range s.Failures[:min(len(s.Failures), o.Limit())] {
		r.Failures = append(r.Failures, failureReport(s, st, o, &s.Failures[i]))
	}
	for i := range s.Processes {
		r.Processes = append(r.Processes, processReport(s, &s.Processes[i]))
		r.Processes[i].SegmentsOnly = report.SegmentsOnly(s, st, i)
	}
	for _, x := range s.Releases {
		r.Releases = append(r.Releases, ReleaseReport{x.Process, s.Processes[x.Process].PID, format.Cause(x.Cause), x.Objects, x.Bytes, report.Minus(s.End, x.Time)})
	}
	for _, x := range s.Pools {
		r.Pools = append(r.Pools, PoolReport{
			x.Process, s.Processes[x.Process].PID, x.Handle, format.Device(x.Device, ledger.Async), untrusted.Clean(report.GPUUUID(s, x.Process, x.Device, ledger.Async)),
			x.Objects, x.Used, x.Reserve, x.Least, x.Held, x.Threshold, x.Destroyed,
		})
	}
	for i := range s.Balances {
		b := &s.Balances[i]
		r.Balances = append(r.Balances, BalanceReport{
			b.Process, s.Processes[b.Process].PID, format.Device(b.Device, ledger.Device), untrusted.Clean(b.UUID), b.Usage, b.Peak, b.Baseline, b.Live, b.Gap, b.Rounding, b.Idle,
			report.Minus(s.End, b.Time), b.Since, b.Doubt, b.Unlisted,
		})
	}
	for i := range s.GPUs {
		r.GPUs = append(r.GPUs, gpuReport(&s.GPUs[i]))
	}
	for _, x := range s.System {
		r.System = append(r.System, SystemReport{
			x.Process, s.Processes[x.Process].PID, format.Device(x.Device, ledger.Device), untrusted.Clean(x.UUID), x.Bytes, report.Minus(s.End, x.Time), x.Cut,
		})
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

func siteReport(s *ledger.Snapshot, st callstack.Stacks, j *report.Judgement, o report.Options, kept []*report.Kept, x *ledger.Site) SiteReport {
	p := &s.Processes[x.Process]
	stack, head := j.Headline(s, st, x)
	oldest, _ := report.Age(s, x)
	return SiteReport{
		Holders: shareReports(kept[x.Process].OfSites([]*ledger.Site{x})),
		Owners:  ownerReports(s, st, o, x), MoreOwners: x.MoreOwners,
		Incomplete: report.Marks(s, st, x), MissingCount: x.Evicted, CrowdedCount: x.Crowded,
		Process: x.Process, PID: p.PID, Comm: untrusted.Clean(p.Comm), Ended: p.End != 0,
		Device: format.Device(x.Device, x.Kind), GPUUUID: untrusted.Clean(report.GPUUUID(s, x.Process, x.Device, x.Kind)),
		Plane: report.WholePlane(x), Kind: format.Kind(x.Kind), API: untrusted.Clean(x.API),
		LiveBytes: x.LiveBytes, LiveCount: x.LiveObjects, AsleepBytes: x.Asleep, AllocatedBytes: x.AllocBytes, AllocatedCount: x.AllocObjects,
		OldestNS: oldest, GrowthBytes: x.Growth, GrowthRate: report.PerMinute(x.Growth, s.GrowthSpan(x.Process)),
		History: append([]uint64{}, x.History...), Headline: head, Stack: stackReport(stack),
	}
}

// OwnerReport is a site that allocated imported memory.
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

func gpuReport(g *ledger.GPU) GPUReport {
	r := GPUReport{
		Index: g.Index, UUID: untrusted.Clean(g.UUID), ParentUUID: untrusted.Clean(g.Parent), Name: untrusted.Clean(g.Name),
		TotalBytes: g.Total, UsedBytes: g.Now(), Integrated: g.Integrated, Addressing: g.Addressing.String(),
	}
	if g.HasNode {
		r.Node = &g.Node
	}
	return r
}
