// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// ownerLabels adds the owners of imported memory to a sample's labels.
func ownerLabels(s *ledger.Snapshot, st callstack.Stacks, x *ledger.Site, label map[string][]string, number map[string][]int64) {
	if x == nil {
		return
	}
	for i := range x.Owners {
		w := &x.Owners[i]
		p := &s.Processes[w.Process]
		label["owner"] = append(label["owner"], format.Process(p))
		label["owner_site"] = append(label["owner_site"], report.LineText(st, w.Stack, w.API))
		number["owner_pid"] = append(number["owner_pid"], int64(p.PID))
	}
}

// workloadLabels adds a workload to a sample's labels. Ranks are numbers, because pprof reads
// -tagfocus=rank=3 as a range and finds no text by it. They have a unit, because pprof drops a 0
// without one.
func workloadLabels(w *ledger.Workload, label map[string][]string, number map[string][]int64, unit map[string][]string) {
	names, ranks := report.WorkloadLabels(w)
	for key, name := range names {
		label[key] = []string{name}
	}
	for key, n := range ranks {
		number[key], unit[key] = []int64{n}, []string{key}
	}
}
