// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Family describes one metric. Families lists all of them.
type Family struct {
	Name   string
	Help   string
	Type   prometheus.ValueType
	Labels []string // in order; rowLabels first, if the metric has them

	desc *prometheus.Desc
}

// Labels of a row, as dcgm-exporter spells them. pidLabels follow with Options.PID.
var (
	rowLabels = []string{"gpu", "UUID", "namespace", "pod", "container", "hpc_job", "user"}
	pidLabels = []string{"pid", "comm", "rank", "actor"}
	gpuLabels = rowLabels[:2]
)

// id is the index of a family in Families.
type id int

const (
	memoryBytes id = iota
	outsideBytes
	overbookedBytes
	peakBytes
	nvmlPeakBytes
	allocations
	allocatedBytes
	frees
	freedBytes
	failures
	outOfMemory
	verdictLines
	verdictBytes
	growth
	cacheBytes
	allocatorRetries
	allocatorPeak
	untracedBytes
	gpuUsed
	gpuTotal
	gpuUntraced
	gpuGrowth
	gpuFull
	gpuInfo
	nvmlAge
	processes
	forgotten
	events
	lostEvents
	lostReasons
	unmatchedFrees
	evicted
	reused
	unknownSizes
	missingStacks
	truncatedStacks
	unrecorded
	detailDropped
	foldedSites
	tracingRatio
	internalErrors
	verdictAge
	labelSets
	mergedSets
	ownMemory
	ownLimit
	kernelMemory
	unwindTables
	unwindTablesSize
	unwindTablesRefused
	jobAge
	stallingProcesses
	alertsSkipped
	archiveBytes
	archiveOldest
	archiveLost
	archiveLostEvents
	archiveFailures
	startTime
	buildInfo
	familyCount
)

const (
	gauge   = prometheus.GaugeValue
	counter = prometheus.CounterValue
)

func rowAnd(more ...string) []string { return slices.Concat(rowLabels, more) }

// Families has all metrics, without the labels of Options.PID.
var Families = [familyCount]Family{
	memoryBytes: {Name: "vramprof_memory_bytes", Type: gauge, Labels: rowAnd("plane"),
		Help: "GPU memory of running processes by plane. The planes add up to what NVML reports for the processes."},
	outsideBytes: {Name: "vramprof_memory_outside_bytes", Type: gauge, Labels: rowAnd("plane"),
		Help: "Memory that NVML counts for no process or for another one: host, managed, asleep (also of a process that NVML no longer lists) or imported; and system, which the system allocated on a GPU's NUMA node."},
	overbookedBytes: {Name: "vramprof_overbooked_bytes", Type: gauge, Labels: rowAnd(),
		Help: "Bytes by which the books exceed what NVML reports, taken off the planes before, rounding, cache, driver and tensor, in this order."},
	peakBytes: {Name: "vramprof_peak_bytes", Type: gauge, Labels: rowAnd(),
		Help: "Most memory that one process held at any moment since it was first seen: tensors where PyTorch reports them, else all that it allocated, on several GPUs that of one kind."},
	nvmlPeakBytes: {Name: "vramprof_nvml_peak_bytes", Type: gauge, Labels: rowAnd(),
		Help: "Highest usage of one process that NVML reported in a reading."},
	allocations: {Name: "vramprof_allocations_total", Type: counter, Labels: rowAnd("kind"),
		Help: "Allocations since the attach."},
	allocatedBytes: {Name: "vramprof_allocated_bytes_total", Type: counter, Labels: rowAnd("kind"),
		Help: "Bytes allocated since the attach."},
	frees: {Name: "vramprof_frees_total", Type: counter, Labels: rowAnd("kind"),
		Help: "Allocations since the attach that were freed."},
	freedBytes: {Name: "vramprof_freed_bytes_total", Type: counter, Labels: rowAnd("kind"),
		Help: "Bytes allocated since the attach that were freed."},
	failures: {Name: "vramprof_allocation_failures_total", Type: counter, Labels: rowAnd("error"),
		Help: "Failed allocations. PyTorch frees its cache and tries again after some of them."},
	outOfMemory: {Name: "vramprof_out_of_memory_total", Type: counter, Labels: rowAnd(),
		Help: "Allocations that failed for good because there was not enough memory."},
	verdictLines: {Name: "vramprof_verdict_lines", Type: gauge, Labels: rowAnd("verdict"),
		Help: "Lines of code with live memory, by verdict: leaking, growing, cache, steady, one-off or unknown."},
	verdictBytes: {Name: "vramprof_verdict_bytes", Type: gauge, Labels: rowAnd("verdict"),
		Help: "Live bytes of the lines of code by verdict."},
	growth: {Name: "vramprof_growth_bytes_per_second", Type: gauge, Labels: rowAnd("verdict"),
		Help: "Growth of the lines of code that are leaking or growing, in bytes per second, over the horizon in which they grow."},
	cacheBytes: {Name: "vramprof_pytorch_cache_bytes", Type: gauge, Labels: rowAnd("kind"),
		Help: "PyTorch's cache by kind: idle (goes back with empty_cache), held (next to live tensors) or small (pieces of at most 1 MiB next to large tensors). The rest is for some uses only: streams (other streams), pools (CUDA graphs or MemPools) and pending (a stream may still use it)."},
	allocatorRetries: {Name: "vramprof_pytorch_allocation_retries", Type: gauge, Labels: rowAnd(),
		Help: "How often PyTorch freed its cache and tried again, since its process began, of running processes."},
	allocatorPeak: {Name: "vramprof_pytorch_peak_allocated_bytes", Type: gauge, Labels: rowAnd(),
		Help: "Highest peak of tensors of one process since it began, as PyTorch counts it, or since the program reset it."},
	untracedBytes: {Name: "vramprof_pytorch_not_traced_bytes", Type: gauge, Labels: rowAnd(),
		Help: "Part of the tensors without a stack trace, because they were or may have been allocated while the budget did not allow tracing."},
	gpuUsed: {Name: "vramprof_gpu_memory_used_bytes", Type: gauge, Labels: gpuLabels,
		Help: "Used memory of the GPU as NVML reports it, corrected by what was booked since the reading."},
	gpuTotal: {Name: "vramprof_gpu_memory_total_bytes", Type: gauge, Labels: gpuLabels,
		Help: "Memory of the GPU."},
	gpuUntraced: {Name: "vramprof_gpu_memory_untraced_bytes", Type: gauge, Labels: gpuLabels,
		Help: "Used memory of the GPU that is in no plane: processes that vramprof does not trace, and the driver."},
	gpuGrowth: {Name: "vramprof_gpu_growth_bytes_per_second", Type: gauge, Labels: append(slices.Clone(gpuLabels), "plane", "verdict"),
		Help: "Growth of the planes of a GPU by verdict, leaking (certain) or growing (may be a warm-up), in bytes per second: tensor, cache, driver, unexplained, or others, which no traced process has. 0 where a plane does not grow."},
	gpuFull: {Name: "vramprof_gpu_full_seconds", Type: gauge, Labels: gpuLabels,
		Help: "Seconds until the GPU is full if all planes that grow go on at their rate. Absent if none grows."},
	gpuInfo: {Name: "vramprof_gpu_info", Type: gauge, Labels: append(slices.Clone(gpuLabels), "model_name", "parent_uuid"),
		Help: "1 for each GPU and MIG instance. parent_uuid is the GPU of an instance."},
	nvmlAge: {Name: "vramprof_nvml_reading_age_seconds", Type: gauge, Labels: gpuLabels,
		Help: "Age of the latest NVML reading."},
	processes: {Name: "vramprof_processes", Type: gauge,
		Help: "Running processes that vramprof traces."},
	forgotten: {Name: "vramprof_forgotten_processes_total", Type: counter,
		Help: "Ended processes that left the books."},
	events: {Name: "vramprof_events_total", Type: counter,
		Help: "Booked events."},
	lostEvents: {Name: "vramprof_lost_events_total", Type: counter,
		Help: "Events that are not booked. They make counts and bytes too high or too low."},
	lostReasons: {Name: "vramprof_lost_events_by_reason_total", Type: counter, Labels: []string{"reason"},
		Help: "Events that are not booked, by reason, such as buffers_full."},
	unmatchedFrees: {Name: "vramprof_unmatched_frees_total", Type: counter,
		Help: "Frees of memory that was never booked, for example because it is from before the attach."},
	evicted: {Name: "vramprof_evicted_allocations_total", Type: counter,
		Help: "Allocations beyond the limit of live allocations, which no live figure has."},
	reused: {Name: "vramprof_reused_addresses_total", Type: counter,
		Help: "Live addresses that were allocated again, so that the free in between was not seen."},
	unknownSizes: {Name: "vramprof_unknown_size_allocations", Type: gauge,
		Help: "Live allocations of unknown size, counted with 0 bytes."},
	missingStacks: {Name: "vramprof_missing_stacks_total", Type: counter, Labels: []string{"reason"},
		Help: "Events without a stack trace, by reason."},
	truncatedStacks: {Name: "vramprof_truncated_stacks_total", Type: counter, Labels: []string{"reason"},
		Help: "Stack traces that were not walked to the end, by reason."},
	unrecorded: {Name: "vramprof_out_of_memory_unrecorded_total", Type: counter,
		Help: "Out-of-memory errors that were not recorded."},
	detailDropped: {Name: "vramprof_detail_dropped_total", Type: counter,
		Help: "How often vramprof dropped detail because of --max-memory."},
	foldedSites: {Name: "vramprof_folded_sites_total", Type: counter,
		Help: "Sites that lost their stack trace because memory was scarce."},
	tracingRatio: {Name: "vramprof_tensor_tracing_ratio", Type: gauge,
		Help: "Highest share of a thread's time that tracing of tensors took in a process in the latest 10 s."},
	internalErrors: {Name: "vramprof_internal_errors_total", Type: counter, Labels: []string{"place"},
		Help: "Internal errors while metrics were composed, by place in the source."},
	verdictAge: {Name: "vramprof_verdicts_age_seconds", Type: gauge,
		Help: "Age of the verdicts."},
	labelSets: {Name: "vramprof_label_sets", Type: gauge,
		Help: "Sets of the labels gpu, UUID, namespace, pod, container, hpc_job and user in use, at most 1000."},
	mergedSets: {Name: "vramprof_label_sets_merged", Type: gauge,
		Help: "Label sets beyond the limit, summed with namespace, pod, container, hpc_job and user set to other."},
	ownMemory: {Name: "vramprof_own_memory_bytes", Type: gauge,
		Help: "Memory of vramprof itself, as --max-memory bounds it."},
	ownLimit: {Name: "vramprof_own_memory_limit_bytes", Type: gauge,
		Help: "The value of --max-memory."},
	kernelMemory: {Name: "vramprof_kernel_memory_bytes", Type: gauge,
		Help: "Memory of the BPF maps."},
	unwindTables: {Name: "vramprof_unwind_table_entries", Type: gauge, Labels: []string{"table"},
		Help: "Entries in use of the tables that the unwind tables of all files share, by table: files, rows, pages of code, rules."},
	unwindTablesSize: {Name: "vramprof_unwind_table_entries_limit", Type: gauge, Labels: []string{"table"},
		Help: "Entries that there are of the tables that the unwind tables of all files share."},
	unwindTablesRefused: {Name: "vramprof_unwind_tables_refused_total", Type: counter,
		Help: "Files that had no room for their unwind table: it was full, or the share of their process or user. Their stacks are truncated."},
	jobAge: {Name: "vramprof_oldest_job_age_seconds", Type: gauge,
		Help: "For how long the oldest task of finding and probing processes has waited or run. Above 60, vramprof is not ready: see /-/ready."},
	stallingProcesses: {Name: "vramprof_stalling_processes", Type: gauge,
		Help: "Running processes that stall looks at their mappings or their memory. What they map meanwhile is not traced."},
	alertsSkipped: {Name: "vramprof_alerts_skipped_total", Type: counter,
		Help: "Events for which the command of --on-oom or --on-leak did not run: there were too many in all, of a process or of a user."},
	archiveBytes: {Name: "vramprof_archive_bytes", Type: gauge,
		Help: "Size of the archive on disk."},
	archiveLost: {Name: "vramprof_archive_lost_seconds_total", Type: counter,
		Help: "Time that is missing in the archive, for example because the disk was full."},
	archiveOldest: {Name: "vramprof_archive_oldest_timestamp_seconds", Type: gauge,
		Help: "When the oldest capture of the archive began, in seconds since 1970."},
	archiveLostEvents: {Name: "vramprof_archive_lost_events_total", Type: counter,
		Help: "Events that are missing in the archive."},
	archiveFailures: {Name: "vramprof_archive_failures_total", Type: counter,
		Help: "Failures of the disk of the archive."},
	startTime: {Name: "vramprof_tracing_start_time_seconds", Type: gauge,
		Help: "When tracing began, in seconds since 1970."},
	buildInfo: {Name: "vramprof_build_info", Type: gauge, Labels: []string{"version", "revision", "goversion"},
		Help: "1, with the version of vramprof."},
}

// families returns Families with their descriptors.
func families(pid bool) *[familyCount]Family {
	list := Families
	for i := range list {
		f := &list[i]
		if pid && len(f.Labels) >= len(rowLabels) {
			f.Labels = slices.Concat(rowLabels, pidLabels, f.Labels[len(rowLabels):])
		}
		f.desc = prometheus.NewDesc(f.Name, f.Help, f.Labels, nil)
	}
	return &list
}
