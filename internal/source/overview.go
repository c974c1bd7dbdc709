// SPDX-License-Identifier: Apache-2.0

package source

import (
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/tracer/archive"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Overview returns what an archive has of the processes that pass a filter.
func Overview(a *archive.Archive, f archive.Filter) *report.Archive {
	o := &report.Archive{Folder: a.Dir(), Problems: a.Problems(), Only: FilterText(f)}
	o.From, o.To, _ = a.Span()
	for i, x := range a.Captures() {
		o.Captures++
		o.Bytes += uint64(x.Size)
		if i == 0 {
			o.Host = x.Host
		} else if o.Host != x.Host {
			o.Host = ""
		}
	}
	for _, g := range a.Gaps() {
		o.Gaps = append(o.Gaps, report.ArchiveGap{From: g.From, To: g.To, Why: whyGap(g)})
	}
	list, more := a.Processes(f)
	o.More = more
	for _, x := range list {
		o.Processes = append(o.Processes, report.ArchiveProcess{
			PID: x.PID, Comm: x.Comm, Container: x.Container, Pod: x.Pod, Namespace: x.Namespace, Job: x.Job, Rank: x.Rank,
			From: x.From, To: x.To, Running: x.Running, Peak: x.Peak, PeakAt: x.PeakWall, OOMs: x.OOMs,
		})
	}
	errors, more := a.Errors(f)
	o.MoreErrors = more
	for _, e := range errors {
		o.Errors = append(o.Errors, report.ArchiveError{At: e.Wall, PID: e.PID, Comm: e.Comm, API: e.API, Size: e.Size})
	}
	records, err := a.Records()
	if err != nil {
		o.Problems = append(o.Problems, err.Error())
	}
	for i := range records {
		x := &records[i]
		if !archive.MatchesProcess(f.Process, x.PID, x.Comm) || !archive.MatchesPod(f.Pod, x.Workload.Namespace, x.Workload.Pod) || !archive.MatchesJob(f.Job, x.Workload.Job) {
			continue
		}
		r := report.ArchiveRecord{At: x.Time, PID: x.PID, Comm: x.Comm, Pod: x.Workload.Pod, Size: ledger.UnknownSize, Path: x.Path}
		if x.RequestedSize != nil {
			r.Size = *x.RequestedSize
		}
		if x.GPU != nil {
			r.GPU = x.GPU.UUID
		}
		o.Records = append(o.Records, r)
	}
	return o
}

// whyGap explains a gap.
func whyGap(g archive.Gap) string {
	switch {
	case g.Reboot:
		return "the machine was started again"
	case g.Session:
		return "vramprof did not run"
	}
	return "it could not be written"
}
