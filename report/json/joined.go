// SPDX-License-Identifier: Apache-2.0

package json

import (
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/ranks"
	"github.com/vramprof/vramprof/report/steps"
	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// JoinedReport is one line of code in several processes of a job.
type JoinedReport struct {
	Class     string  `json:"class"`            // of the worst
	Text      string  `json:"text"`             // "grows 12.0 MiB a step in each of 8 processes (ranks 0 to 7), 96.0 MiB a step together"
	Verdicts  []int   `json:"verdicts"`         // indices into verdicts, the worst first
	Processes []int   `json:"processes"`        // indices into processes
	Of        int     `json:"of"`               // how many processes the job has; without ranks, as many as processes
	Rate      float64 `json:"bytes_per_second"` // of all together; 0 where they may not grow
	LiveBytes uint64  `json:"live_bytes"`       // of all together
}

func joinedReports(s *ledger.Snapshot, j *report.Judgement, o report.Options) (list []JoinedReport) {
	jobs := ranks.New(s)
	for _, v := range jobs.Verdicts(j.Groups) {
		if !v.Several() {
			continue
		}
		r := JoinedReport{Class: v.Class.String(), Text: jobs.Text(v.Processes), Verdicts: v.Groups, Processes: v.Processes, Of: len(jobs.Among(v.Processes)), LiveBytes: v.LiveBytes}
		if v.Class >= verdict.Growing {
			r.Text = jobs.Growth(&v, j.Groups, func(process int) *steps.Steps {
				p := &s.Processes[process]
				return o.Steps.Of(p.PID, p.Begin, p.End)
			})
		}
		for _, n := range v.Groups {
			r.Rate += j.Groups[n].PerSecond()
		}
		list = append(list, r)
	}
	return list
}
