// SPDX-License-Identifier: Apache-2.0

package fragmentation

import (
	"strings"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/tracer/ledger"
)

const lineColumns = 60 // most columns of a line of code inside a sentence

// HoldText returns "64.0 MiB in 12 tensors hold 5.16 GiB in 261 segments"; of a row of several
// lines with "together".
func (r *Row) HoldText() string {
	blocks, bytes := r.Blocks()
	hold, together := " hold ", ""
	if blocks == 1 {
		hold = " holds "
	}
	if len(r.Lines) > 1 {
		together = "together "
	}
	text := together + format.Bytes(bytes) + " in " + format.Count(blocks, format.Noun(ledger.Tensor)) + hold + format.Bytes(r.Bytes) + " in " + format.Count(r.Segments, "segment")
	if with := r.Free - r.Alone; with > 0 {
		text += ", " + format.Bytes(with) + " of the cache there only with the lines above"
	}
	return text
}

// LinesText returns "metrics.py:31 Metrics.update and data.py:88 Loader.next".
func (r *Row) LinesText() string {
	var lines []string
	for i := range r.Lines {
		lines = append(lines, frames.Text(&r.Lines[i].Frame, lineColumns))
	}
	return strings.Join(lines, " and ")
}
