// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/output"
	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/report/profile"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/tracer/archive"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func findFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "process", Usage: "show only the process `PID|NAME`"},
		&cli.StringFlag{Name: "pod", Usage: "show only processes of the Kubernetes `POD`: NAME or NAMESPACE/NAME"},
		&cli.StringFlag{Name: "job", Usage: "show only processes of the batch job `JOB`: its number or its name"},
	}
}

// filterOf returns which processes --process, --pod and --job choose.
func filterOf(c *cli.Context) archive.Filter {
	return archive.Filter{Process: c.String("process"), Pod: c.String("pod"), Job: c.String("job")}
}

// reportArchive shows a moment of an archive, what changed between two, or what is in it.
func reportArchive(c *cli.Context, path string, at moment, between *[2]moment, page output.Destination) error {
	if between == nil && (c.IsSet("at") || c.IsSet("view") || page != nil) {
		r, done, err := openSource(c, &at)
		if err != nil {
			return err
		}
		defer done()
		if page != nil {
			return writePage(c, r, page)
		}
		return writeView(c, r, at)
	}
	a, err := openArchive(c, path)
	if err != nil {
		return err
	}
	if between != nil {
		return archiveBetween(c, a, *between)
	}
	overview := overviewOf(a, filterOf(c))
	if c.Bool("json") {
		return json.WriteArchive(c.App.Writer, overview)
	}
	return text.WriteArchive(c.App.Writer, overview, report.Options{Top: c.Int("top")}, terminal.Screen())
}

// archiveBetween writes what changed between two moments, which may be in different captures.
func archiveBetween(c *cli.Context, a *archive.Archive, between [2]moment) error {
	var found [2]archive.Moment
	for i := range between {
		var err error
		if found[i], err = between[i].inArchive(a); err != nil {
			return fmt.Errorf("%s: %w", untrusted.Clean(a.Dir()), err)
		}
	}
	if !found[0].Wall.Before(found[1].Wall) {
		return fault.Usage(reversed(c.String("between"), between[0], between[1]))
	}
	if found[0].Capture == found[1].Capture {
		r, done, err := readCapture(c, found[0].Capture.Path)
		if err != nil {
			return err
		}
		defer done()
		between[0].found, between[1].found = &found[0].Time, &found[1].Time
		between[0].text, between[1].text = wallOf(found[0]), wallOf(found[1])
		return writeBetween(c, r, between)
	}
	if c.String("view") != "summary" {
		return fault.Usage(fmt.Errorf("the moments are in different captures of the archive, between which only --view summary shows what changed"))
	}
	var profiles [2]profile.Profile
	for i, m := range found {
		r, done, err := readCapture(c, m.Capture.Path)
		if err != nil {
			return err
		}
		s, err := r.Snapshot(m.Time)
		if err == nil {
			s, err = onlyOf(c, s)
		}
		if err == nil {
			profiles[i] = profile.New(s, mine(c, r)).Mine(mineOf(c))
		}
		done()
		if err != nil {
			return err
		}
	}
	names := [2]string{wallOf(found[0]), wallOf(found[1])}
	return text.WriteDiff(c.App.Writer, profile.Diff(profiles[0], profiles[1]), names, viewOptions(c), terminal.Screen())
}

// overviewOf returns what an archive has of the processes that pass a filter.
func overviewOf(a *archive.Archive, f archive.Filter) *report.Archive {
	o := &report.Archive{Folder: a.Dir(), Problems: a.Problems(), Only: onlyText(f)}
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

func onlyText(f archive.Filter) string {
	var list []string
	for _, x := range [...]struct{ noun, name string }{{"process", f.Process}, {"pod", f.Pod}, {"job", f.Job}} {
		if x.name != "" {
			list = append(list, x.noun+" "+x.name)
		}
	}
	return strings.Join(list, " of ")
}

// onlyChosen returns the processes of a view that --process, --pod and --job choose.
func onlyChosen(c *cli.Context, view json.View) (*ledger.Snapshot, error) {
	only := filterOf(c)
	if only == (archive.Filter{}) {
		return view.Snapshot, nil
	}
	if view.Timeline != nil || view.Sizes != nil {
		return nil, fault.Usage(fmt.Errorf("--view %s shows the whole session (without --process, --pod and --job)", view.Name))
	}
	return chosen(view.Snapshot, only)
}

// onlyOf returns the processes of a snapshot that --process, --pod and --job choose.
func onlyOf(c *cli.Context, s *ledger.Snapshot) (*ledger.Snapshot, error) {
	if only := filterOf(c); only != (archive.Filter{}) {
		return chosen(s, only)
	}
	return s, nil
}

// chosen returns the processes of a snapshot that pass a filter.
func chosen(s *ledger.Snapshot, only archive.Filter) (*ledger.Snapshot, error) {
	s = s.Only(func(p *ledger.Process) bool { return passes(only, p) })
	if len(s.Processes) == 0 {
		return nil, fault.New(fault.NoProcess, fmt.Errorf("no process is %s", onlyText(only)))
	}
	return s, nil
}

func passes(f archive.Filter, p *ledger.Process) bool {
	return archive.MatchesProcess(f.Process, p.PID, p.Comm) && archive.MatchesPod(f.Pod, p.Namespace, p.Pod) && archive.MatchesJob(f.Job, p.Job)
}
