// SPDX-License-Identifier: Apache-2.0

package json

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// ArchiveVersion is the version of ArchiveReport.
const ArchiveVersion = 1

// ArchiveReport is the JSON of report about an archive. Times are RFC 3339, sizes are bytes. Fields
// are only added within a version.
type ArchiveReport struct {
	Version       int                    `json:"version"`
	Folder        string                 `json:"folder"`
	Host          string                 `json:"host,omitempty"` // absent if captures of several machines are in it
	From          string                 `json:"from,omitempty"` // absent if nothing is in it
	To            string                 `json:"to,omitempty"`
	Bytes         uint64                 `json:"bytes"`
	Captures      int                    `json:"captures"`
	Gaps          []ArchiveGapReport     `json:"gaps"`      // times that it lacks
	Processes     []ArchiveProcessReport `json:"processes"` // highest peak first
	MoreProcesses uint64                 `json:"more_processes,omitempty"`
	Errors        []ArchiveErrorReport   `json:"out_of_memory"` // oldest first
	MoreErrors    uint64                 `json:"more_out_of_memory,omitempty"`
	Records       []ArchiveRecordReport  `json:"records"` // newest first
	Problems      []string               `json:"problems,omitempty"`
}

// ArchiveGapReport is a time that the archive lacks.
type ArchiveGapReport struct {
	From string `json:"from"`
	To   string `json:"to"`
	Why  string `json:"why"`
}

// ArchiveProcessReport is a process over all captures.
type ArchiveProcessReport struct {
	PID       uint32 `json:"pid"`
	Comm      string `json:"comm"`
	From      string `json:"from"`
	To        string `json:"to"`
	Running   bool   `json:"running"`    // it runs at "to", where its session ends
	PeakBytes uint64 `json:"peak_bytes"` // on all GPUs, as NVML or PyTorch's allocator reported them
	PeakTime  string `json:"peak_time,omitempty"`
	OOMs      uint64 `json:"out_of_memory,omitempty"`

	Workload *WorkloadReport `json:"workload,omitempty"`
}

// ArchiveErrorReport is an out-of-memory error.
type ArchiveErrorReport struct {
	Time  string  `json:"time"`
	PID   uint32  `json:"pid"`
	Comm  string  `json:"comm"`
	API   string  `json:"api"`
	Bytes *uint64 `json:"bytes,omitempty"` // that were wanted; absent if unknown
}

// ArchiveRecordReport is the record of an out-of-memory error.
type ArchiveRecordReport struct {
	Time  string  `json:"time"`
	PID   uint32  `json:"pid"`
	Comm  string  `json:"comm"`
	Pod   string  `json:"pod,omitempty"`
	GPU   string  `json:"gpu_uuid,omitempty"`
	Bytes *uint64 `json:"bytes,omitempty"` // that were wanted; absent if unknown
	Path  string  `json:"path"`
}

// WriteArchive writes an ArchiveReport.
func WriteArchive(w io.Writer, a *report.Archive) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(NewArchive(a)); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// NewArchive returns an overview of an archive as JSON.
func NewArchive(a *report.Archive) *ArchiveReport {
	r := &ArchiveReport{
		Version: ArchiveVersion, Folder: untrusted.Clean(a.Folder), Host: untrusted.Clean(a.Host), From: rfc3339(a.From), To: rfc3339(a.To),
		Bytes: a.Bytes, Captures: a.Captures, Gaps: []ArchiveGapReport{}, Processes: []ArchiveProcessReport{}, MoreProcesses: a.More,
		Errors: []ArchiveErrorReport{}, MoreErrors: a.MoreErrors, Records: []ArchiveRecordReport{},
	}
	for _, g := range a.Gaps {
		r.Gaps = append(r.Gaps, ArchiveGapReport{rfc3339(g.From), rfc3339(g.To), g.Why})
	}
	for i := range a.Processes {
		x := &a.Processes[i]
		r.Processes = append(r.Processes, ArchiveProcessReport{
			PID: x.PID, Comm: untrusted.Clean(x.Comm), From: rfc3339(x.From), To: rfc3339(x.To), Running: x.Running,
			Workload:  NewWorkload(ledger.Workload{Container: x.Container, Pod: x.Pod, Namespace: x.Namespace, Job: x.Job, Rank: x.Rank}),
			PeakBytes: x.Peak, PeakTime: rfc3339(x.PeakAt), OOMs: x.OOMs,
		})
	}
	for _, e := range a.Errors {
		r.Errors = append(r.Errors, ArchiveErrorReport{rfc3339(e.At), e.PID, untrusted.Clean(e.Comm), untrusted.Clean(e.API), wanted(e.Size)})
	}
	for _, x := range a.Records {
		r.Records = append(r.Records, ArchiveRecordReport{
			rfc3339(x.At), x.PID, untrusted.Clean(x.Comm), untrusted.Clean(x.Pod), untrusted.Clean(x.GPU), wanted(x.Size), untrusted.Clean(x.Path),
		})
	}
	for _, text := range a.Problems {
		r.Problems = append(r.Problems, untrusted.Clean(text))
	}
	return r
}

func rfc3339(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

func wanted(size uint64) *uint64 {
	if size == ledger.UnknownSize {
		return nil
	}
	return &size
}
