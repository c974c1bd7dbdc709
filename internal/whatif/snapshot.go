// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/internal/remedy"
	"github.com/vramprof/vramprof/internal/torchfile"
)

// ReadSnapshot reads a memory snapshot of PyTorch with a history. The file does not name the
// version of PyTorch that wrote it; "" is unknown. An unlimited file is trusted.
func ReadSnapshot(name, version string, unlimited bool) ([]*Job, error) {
	r, err := torchfile.Record(name, unlimited)
	if err != nil {
		return nil, err
	}
	var jobs []*Job
	for i := range r.Devices {
		d := &r.Devices[i]
		j := &Job{Comm: r.Comm, PID: r.PID, Device: int32(d.Trace.Device), Trace: d.Trace, Stacks: r.Stacks, Snapshot: true}
		j.Trace.Version = version
		if j.refuse(r, d.Older); len(j.Refused) == 0 {
			remedy.MarkSteps(j.Trace, j.Stacks)
		}
		j.Prove()
		jobs = append(jobs, j)
	}
	if len(jobs) == 0 {
		jobs = []*Job{{Snapshot: true, Trace: &allocsim.Trace{Version: version}, Refused: []Condition{{Code: NoHistory}}}}
	}
	return jobs, nil
}

func (j *Job) refuse(r *torchfile.History, older uint64) {
	refuse := func(c Condition) { j.Refused = append(j.Refused, c) }
	if r.Exported {
		refuse(Condition{Code: Exported})
	}
	if older > 0 {
		refuse(Condition{Code: NotFromStart, Count: older})
	}
	if !r.SettingsKnown {
		refuse(Condition{Code: UnknownSettings})
	}
	var err error
	if j.Trace.Settings, err = allocsim.ParseSettings(r.Settings); err != nil {
		refuse(Condition{Code: OtherSettings, Text: r.Settings, Err: err})
	}
}
