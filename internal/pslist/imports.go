// SPDX-License-Identifier: Apache-2.0

package pslist

import (
	"github.com/vramprof/vramprof/report/imported"
	reportjson "github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// AddImports adds what processes have imported from others, as the books of a running vramprof
// serve have it: nothing else shows that. A process that the books have and the list has not is
// left out.
func AddImports(r *reportjson.ProcessesReport, s *ledger.Snapshot) {
	for _, m := range imported.Of(s) {
		imports := &reportjson.ImportsReport{Bytes: m.Bytes, Count: m.Count, Owners: []reportjson.ExporterReport{}, More: m.More}
		for _, o := range m.Owners {
			imports.Owners = append(imports.Owners, reportjson.ExporterReport(o))
		}
		for k := range r.Processes {
			if r.Processes[k].PID == s.Processes[m.Process].PID {
				presenceOf(&r.Processes[k]).Imports = imports
			}
		}
	}
}

// importsText returns imported.Memory.Text of what AddImports added.
func importsText(r *reportjson.ImportsReport) string {
	m := imported.Memory{Bytes: r.Bytes, Count: r.Count, More: r.More}
	for _, o := range r.Owners {
		m.Owners = append(m.Owners, imported.Owner(o))
	}
	return m.Text()
}
