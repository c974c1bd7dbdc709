// SPDX-License-Identifier: Apache-2.0

package report

import (
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

const lineColumns = 60 // most columns of a line of code inside a sentence

// LineText returns the line of the user's own code in a stack: "train.py:42 Trainer.step".
func LineText(st callstack.Stacks, stack uint64, api string) string {
	list := frames.Visible(st, stack, api)
	f := &list[frames.Headline(list)]
	if f.Mark {
		return "an unknown line (" + untrusted.Clean(api) + ")"
	}
	return frames.Text(f, lineColumns)
}
