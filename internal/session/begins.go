// SPDX-License-Identifier: Apache-2.0

package session

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/tracer"
)

// begins is what the user reads until a session traces.
type begins struct {
	text atomic.Pointer[string]
	end  func()
}

// show shows it until end is called.
func (b *begins) show(w io.Writer) {
	b.say("asking the driver for its GPUs")
	b.end = terminal.AwaitText(w, func(since time.Duration) string {
		return fmt.Sprintf("%s, %ds", *b.text.Load(), int(since.Seconds()))
	})
}

func (b *begins) say(text string) { b.text.Store(&text) }

// stages are what tracer.Run waits for.
var stages = map[tracer.Stage]string{
	tracer.FindsProcesses: "looking for CUDA libraries",
	tracer.ReadsTables:    "reading unwind tables of libraries",
	tracer.AwaitsKernel:   "the kernel verifies programs",
	tracer.SetsProbes:     "setting probes",
	tracer.ReadsUsage:     "asking the driver for the GPU memory in use",
}

// stage returns what is told of the stages in which the tracer attaches to pids; none: to those
// that it finds.
func (b *begins) stage(pids []uint32) func(tracer.Stage) {
	what := "attaching"
	switch {
	case len(pids) == 1:
		what = fmt.Sprintf("attaching to process %d", pids[0])
	case len(pids) > 1:
		what = fmt.Sprintf("attaching to %d processes", len(pids))
	}
	return func(s tracer.Stage) { b.say(what + ": " + stages[s]) }
}
