// SPDX-License-Identifier: Apache-2.0

package text

import (
	"cmp"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// maxRanks is how many processes of a job are listed, those with the lowest ranks.
const maxRanks = 256

// jobParts writes what each process of a job that has ended held at its peak, by rank.
func jobParts(p *page, s *ledger.Snapshot, st callstack.Stacks, o report.Options) {
	list := report.Ranks(s)
	if len(list) == 0 {
		return
	}
	more := len(list) - maxRanks
	list = list[:min(len(list), maxRanks)]
	p.line(plain, 0, "")
	p.text(bold, 0, "GPU memory of each rank at its peak; idle: PyTorch's cache")
	p.line(plain, 0, "")
	rows := [][]string{{"process", "rank", "tensors", "idle", "other"}}
	for i := range list {
		x := &list[i]
		rows = append(rows, []string{format.Process(x.Process), cmp.Or(format.Digits(x.Process.Rank), "-"),
			format.SignedBytes(x.Tensors), format.SignedBytes(x.Cache), format.SignedBytes(x.Other)})
	}
	p.table(rows)
	if more > 0 {
		p.text(plain, 0, format.Count(uint64(more), "more process"))
	}
	for i := range list {
		x := &list[i]
		p.line(plain, 0, "")
		if name := x.Name(); name != "" {
			p.text(bold, 0, name+":")
		}
		endedPart(p, s, st, o, x.Peak)
	}
}
