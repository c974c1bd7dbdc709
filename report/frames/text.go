// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// Text returns a frame's line in at most width columns. Paths lose their beginning, names their
// end.
func Text(f *callstack.Frame, width int) string {
	front, back := Parts(f)
	if back == "" {
		return format.Cut(front, width)
	}
	room := width - 1
	if format.Width(front)+format.Width(back) > room {
		cutFront, cutBack := format.Cut, format.CutFront
		if f.Python {
			cutFront, cutBack = format.CutFront, format.Cut
		}
		half := room / 2
		switch {
		case format.Width(back) <= half:
			front = cutFront(front, room-format.Width(back))
		case format.Width(front) <= half:
			back = cutBack(back, room-format.Width(front))
		default:
			front, back = cutFront(front, room-half), cutBack(back, half)
		}
	}
	return front + " " + back
}
