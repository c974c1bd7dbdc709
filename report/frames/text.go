// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"github.com/vramprof/vramprof/report/words"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// Text returns a frame's line in at most width columns. Paths lose their beginning, names their
// end.
func Text(f *callstack.Frame, width int) string {
	front, back := Parts(f)
	if back == "" {
		return words.Cut(front, width)
	}
	room := width - 1
	if words.Width(front)+words.Width(back) > room {
		cutFront, cutBack := words.Cut, words.CutFront
		if f.Python {
			cutFront, cutBack = words.CutFront, words.Cut
		}
		half := room / 2
		switch {
		case words.Width(back) <= half:
			front = cutFront(front, room-words.Width(back))
		case words.Width(front) <= half:
			back = cutBack(back, room-words.Width(front))
		default:
			front, back = cutFront(front, room-half), cutBack(back, half)
		}
	}
	return front + " " + back
}
