// SPDX-License-Identifier: Apache-2.0

// Package export writes sessions for other viewers: folded stacks for flame graph tools, a timeline
// for Perfetto and Chrome, and the memory snapshot that pytorch.org/memory_viz and
// torch/cuda/_memory_viz.py read.
//
// speedscope and Perfetto also read the pprof profiles of package profile.
//
// The same input gives the same bytes. Names from traced processes are cleaned of control
// characters.
package export

import (
	"fmt"

	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// frameText returns a frame in one line: "step (train.py:42)", "main (server.cc:300)",
// "cudaMalloc". Native code has its simple name.
func frameText(f *callstack.Frame) string {
	name := frames.ShortName(f)
	file := frames.ShortFile(f.File)
	switch {
	case f.Mark || file == "":
		return name
	case f.Line != 0:
		return fmt.Sprintf("%s (%s:%d)", name, file, f.Line)
	}
	return fmt.Sprintf("%s (%s)", name, file)
}
