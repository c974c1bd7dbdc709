// SPDX-License-Identifier: Apache-2.0

// Package oomrecord writes records of out-of-memory errors, and reports each on standard error.
package oomrecord

import (
	"fmt"
	"io"
	"time"

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
		Say:      func(text string) { fmt.Fprintf(stderr, "vramprof: %s\n", untrusted.Clean(text)) },
	}
}
