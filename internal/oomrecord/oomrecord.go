// SPDX-License-Identifier: Apache-2.0

// Package oomrecord has records of out-of-memory errors written, and says so on standard error.
package oomrecord

import (
	"fmt"
	"io"
	"time"

	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/oom"
)

const (
	maxUsers  = 1000        // processes of a reading that get names
	stackWait = time.Second // for a stack that arrives after its event
	nvmlWait  = 5 * time.Second
)

// New returns a recorder whose lines go to stderr.
func New(stderr io.Writer, write func(oom.Error) (string, error)) *oom.Recorder {
	return &oom.Recorder{
		Write:    write,
		Describe: func(o oom.Error) string { return Report(o).Text() },
		Say: func(text string) {
			wipe := ""
			if terminal.Is(stderr) {
				wipe = terminal.Wipe // there may be a progress line
			}
			fmt.Fprintf(stderr, "%svramprof: %s\n", wipe, untrusted.Clean(text))
		},
	}
}
