// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"os"
	"time"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/probeprice"
)

// ReportPrice measures for how long the probe on PyTorch's reports delays a thread per report on
// this machine, without what the kernel half does for a block. It takes some 10 ms, and must follow
// a Wait without an error. The probe is in a function of this process.
func (p *Prober) ReportPrice() (time.Duration, error) {
	return probeprice.Measure(func(program *os.File, offset uint64) (func(), error) {
		executable, err := executableOf(program)
		if err != nil {
			return nil, err
		}
		set := &Set{prober: p}
		if p.one {
			set.pid = ownPID
		}
		var at targets
		at.add(offset, bpf.BlockWithTotals)
		if err := p.attachAll(set, executable, p.blockReported, at, false); err != nil {
			return nil, err
		}
		return set.Close, nil
	})
}
