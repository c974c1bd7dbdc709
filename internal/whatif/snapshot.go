// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/internal/torchfile"
)

// ReadSnapshot reads a memory snapshot of PyTorch with a history. The file does not name the version of
// PyTorch that wrote it; "" is unknown. An unlimited file is trusted.
func ReadSnapshot(name, version string, unlimited bool) ([]*Job, error) {
	r, err := torchfile.Record(name, unlimited)
	if err != nil {
		return nil, err
	}
	var jobs []*Job
	for i := range r.Devices {
		d := &r.Devices[i]
		j := &Job{Comm: r.Comm, PID: r.PID, Device: int32(d.Trace.Device), Trace: d.Trace, Stacks: r.Stacks, Steps: d.Stacks}
		j.Trace.Version = version
		refuse := func(x Refusal) {
			x.From = FromSnapshot
			j.Refusals = append(j.Refusals, x)
		}
		if r.Exported {
			refuse(Refusal{Reason: Exported})
		}
		if d.Older > 0 {
			refuse(Refusal{Reason: OlderMemory, Figure: d.Older})
		}
		if !r.SettingsKnown {
			refuse(Refusal{Reason: NoSettings})
		}
		if j.Trace.Settings, err = allocsim.ParseSettings(r.Settings); err != nil {
			refuse(Refusal{Reason: Settings, Text: err.Error()})
		}
		j.Prove(FromSnapshot)
		jobs = append(jobs, j)
	}
	if len(jobs) == 0 {
		jobs = []*Job{{Refusals: []Refusal{{Reason: NoHistory, From: FromSnapshot}}}}
	}
	return jobs, nil
}
