// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"testing"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

func FuzzFrameTextFits(f *testing.F) {
	f.Add("step", "/home/ada/train.py", true, 20)
	f.Add("很很很很很很", "很很很很/很很很\u0301很", false, 7)
	f.Fuzz(func(t *testing.T, function, file string, isPython bool, width int) {
		width = 4 + int(uint(width)%200)
		text := Text(&callstack.Frame{Function: function, File: file, Line: 1, Python: isPython}, width)
		if format.Width(text) > width {
			t.Errorf("%q has %d columns, want at most %d", text, format.Width(text), width)
		}
	})
}
