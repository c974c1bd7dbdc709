// SPDX-License-Identifier: Apache-2.0

package text

import (
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// systemPart writes the memory that the system allocated on the NUMA nodes of GPUs, by process and
// GPU.
func systemPart(p *page, s *ledger.Snapshot) {
	if len(s.System) == 0 {
		return
	}
	p.line(plain, 0, "")
	p.text(bold, 0, "Beside these sums: allocated by the system on the GPU's NUMA node")
	p.line(plain, 0, "")
	for i := range s.System {
		x := &s.System[i]
		figure := format.Bytes(x.Bytes)
		if x.Cut {
			figure = "at least " + figure
		}
		at := format.ShortUUID(untrusted.Clean(x.UUID))
		if x.Device >= 0 {
			at = format.Device(x.Device, ledger.Device) + " " + at
		}
		p.text(plain, 0, format.Process(&s.Processes[x.Process])+" on "+at+": "+figure)
	}
}
