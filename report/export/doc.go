// SPDX-License-Identifier: Apache-2.0

// Package export writes what was recorded for viewers of others: folded stacks for flame graph tools, a timeline
// for Perfetto and Chrome, and the memory snapshot that pytorch.org/memory_viz and torch/cuda/_memory_viz.py read.
//
// There is no writer for speedscope: it reads pprof profiles, as Perfetto does, so package report's is the one for it.
//
// The same input gives the same bytes. Names that come from traced processes are cleaned of control characters.
package export

import (
	"fmt"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// frameText is a frame in one line: "step (train.py:42)", "main (server.cc:300)", "cudaMalloc".
func frameText(f *callstack.Frame) string {
	name := frames.Name(f)
	file := frames.ShortFile(f.File)
	switch {
	case f.Mark || file == "":
		return name
	case f.Line != 0:
		return fmt.Sprintf("%s (%s:%d)", name, file, f.Line)
	}
	return fmt.Sprintf("%s (%s)", name, file)
}

// processText is "python3 [4242]".
func processText(p *ledger.Process) string {
	comm := untrusted.Clean(p.Comm)
	if comm == "" {
		comm = "pid"
	}
	return fmt.Sprintf("%s [%d]", comm, p.PID)
}
