// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"io"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

const (
	archiveTime = "2006-01-02 15:04:05"
	archiveZone = archiveTime + " MST"

	maxArchiveGaps = 5
)

// WriteArchive writes what an archive has: from when to when, which processes with their peaks, and
// which out-of-memory errors. Times are local.
func WriteArchive(w io.Writer, a *report.Archive, o report.Options, screen Screen) error {
	p := newPage(screen)
	title := "Archive " + untrusted.Clean(a.Folder)
	if a.Host != "" {
		title += " of " + untrusted.Clean(a.Host)
	}
	p.text(bold, 0, title)
	if a.Captures == 0 {
		p.text(plain, 0, "Nothing is in it")
	} else {
		p.list(plain, 0, ", ", "from "+a.From.Local().Format(archiveZone), "to "+a.To.Local().Format(archiveZone),
			format.Count(uint64(a.Captures), "capture"), format.Bytes(a.Bytes))
	}
	archiveGaps(p, a)
	archiveProcesses(p, a, o)
	archiveErrors(p, a, o)
	for i, text := range a.Problems {
		if i == 0 {
			p.line(plain, 0, "")
			p.text(bold, 0, "Cannot be read")
		}
		p.text(plain, 2, untrusted.Clean(text))
	}
	if a.Captures > 0 {
		p.line(plain, 0, "")
		p.paragraph("", fmt.Sprintf("A moment: vramprof report %s --at '%s'", untrusted.Clean(a.Folder), archiveExample(a).Local().Format(archiveTime)))
	}
	return p.writeTo(w)
}

// archiveExample returns a moment worth a look: the highest peak, else the end.
func archiveExample(a *report.Archive) time.Time {
	if len(a.Processes) > 0 && !a.Processes[0].PeakAt.IsZero() {
		return a.Processes[0].PeakAt.Add(time.Second - 1).Truncate(time.Second)
	}
	return a.To
}

func archiveGaps(p *page, a *report.Archive) {
	if len(a.Gaps) == 0 {
		return
	}
	p.line(plain, 0, "")
	p.text(bold, 0, "Not in it")
	for _, g := range a.Gaps[max(len(a.Gaps)-maxArchiveGaps, 0):] {
		p.list(plain, 2, ", ", "from "+g.From.Local().Format(archiveTime), "to "+archiveEnd(g.From, g.To), format.Span(uint64(g.To.Sub(g.From))), g.Why)
	}
	if more := len(a.Gaps) - maxArchiveGaps; more > 0 {
		p.text(dim, 2, format.Count(uint64(more), "earlier gap"))
	}
}

// archiveEnd formats the end of a time without the day of its begin.
func archiveEnd(from, to time.Time) string {
	if from.Local().Format(time.DateOnly) == to.Local().Format(time.DateOnly) {
		return to.Local().Format(time.TimeOnly)
	}
	return to.Local().Format(archiveTime)
}

func archiveProcesses(p *page, a *report.Archive, o report.Options) {
	p.line(plain, 0, "")
	if len(a.Processes) == 0 {
		p.text(bold, 0, "No process has used CUDA"+ofOnly(a))
		return
	}
	p.text(bold, 0, "Processes by their highest GPU memory"+ofOnly(a))
	p.line(plain, 0, "")
	for i := range a.Processes[:min(len(a.Processes), o.Limit())] {
		archiveProcess(p, &a.Processes[i])
	}
	if more := uint64(len(a.Processes)-min(len(a.Processes), o.Limit())) + a.More; more > 0 {
		p.text(dim, 0, format.Count(more, "more process")+" (-T, --process and --pod show more)")
	}
}

func ofOnly(a *report.Archive) string {
	if a.Only == "" {
		return ""
	}
	return ": " + untrusted.Clean(a.Only)
}

func archiveProcess(p *page, x *report.ArchiveProcess) {
	process := ledger.Process{PID: x.PID, Comm: x.Comm}
	p.list(plain, 0, "  ", format.Pad(format.Bytes(x.Peak), -10), format.Process(&process))
	to := "to " + archiveEnd(x.From, x.To)
	if x.Running {
		to = "still there at " + archiveEnd(x.From, x.To)
	}
	parts := []string{"from " + x.From.Local().Format(archiveTime), to}
	if !x.PeakAt.IsZero() {
		parts = append(parts, "peak at "+archiveEnd(x.From, x.PeakAt))
	}
	parts = append(parts, report.WorkloadText(ledger.Workload{Container: x.Container, Pod: x.Pod, Namespace: x.Namespace, Job: x.Job, Rank: x.Rank})...)
	p.list(dim, min(12, p.width/6), ", ", parts...)
	if x.OOMs > 0 {
		p.text(red, min(12, p.width/6), "ran out of memory "+archiveTimes(x.OOMs))
	}
}

func archiveTimes(n uint64) string {
	if n == 1 {
		return "once"
	}
	return format.Count(n, "time")
}

func archiveErrors(p *page, a *report.Archive, o report.Options) {
	if len(a.Errors) > 0 {
		p.line(plain, 0, "")
		p.text(bold, 0, "Out of memory")
		p.line(plain, 0, "")
		for i := range min(len(a.Errors), o.Limit()) {
			e := &a.Errors[len(a.Errors)-1-i]
			x := report.OOM{PID: e.PID, Comm: e.Comm, API: e.API, Size: e.Size}
			p.list(plain, 2, ", ", e.At.Local().Format(archiveTime), format.Process(&ledger.Process{PID: e.PID, Comm: e.Comm}), "wanted "+x.SizeText(), x.Caller())
		}
		if more := uint64(len(a.Errors)-min(len(a.Errors), o.Limit())) + a.MoreErrors; more > 0 {
			p.text(dim, 2, format.Count(more, "earlier error")+" (-T shows more)")
		}
	}
	if len(a.Records) == 0 {
		return
	}
	p.line(plain, 0, "")
	p.text(bold, 0, "Records of out-of-memory errors")
	p.line(plain, 0, "")
	for i := range a.Records[:min(len(a.Records), o.Limit())] {
		p.text(plain, 2, untrusted.Clean(a.Records[i].Path))
	}
	if more := len(a.Records) - o.Limit(); more > 0 {
		p.text(dim, 2, format.Count(uint64(more), "earlier record")+" (-T shows more)")
	}
}
