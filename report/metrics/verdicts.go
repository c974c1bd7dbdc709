// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/vramprof/vramprof/report/watch"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// judge adds verdicts to the rows of processes that still run.
func (d *reading) judge(v *watch.Verdicts) {
	if v == nil {
		return
	}
	at := make(map[ledger.ProcessID]int, len(d.s.Processes))
	for i := range d.s.Processes {
		if d.runs(i) {
			at[d.s.Processes[i].ID()] = i
		}
	}
	for i := range v.Lines {
		x := &v.Lines[i]
		process, runs := at[x.Process]
		if !runs || int(x.Class) >= len(row{}.verdicts) {
			continue
		}
		j := &d.row(process, d.uuidOf(process, x.Device, x.Kind)).verdicts[x.Class]
		j.lines++
		j.bytes += x.Bytes
		j.rate += max(x.Rate, 0)
	}
}
