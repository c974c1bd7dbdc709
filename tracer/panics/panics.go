// SPDX-License-Identifier: Apache-2.0

// Package panics counts panics of vramprof. A panic must neither end the program, which would lose
// the session, nor go unseen.
package panics

import (
	"fmt"
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/vramprof/vramprof/internal/untrusted"
)

// List counts panics by what they cost. The zero List is empty; any goroutine may call its methods.
type List struct {
	mu   sync.Mutex // guards what follows
	seen map[string]*defect
}

type defect struct {
	count uint64
	first string // what the first one said, and where
}

// Recovered recovers from a panic of the function that defers it, and counts it. A panic there
// costs no more than what: "an event".
func (d *List) Recovered(what string) {
	if r := recover(); r != nil {
		d.Note(what, r)
	}
}

// Note counts a panic with the value that recover returned. Only the deferred function that has
// recovered may call it.
func (d *List) Note(what string, value any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.seen == nil {
		d.seen = map[string]*defect{}
	}
	if d.seen[what] == nil {
		d.seen[what] = &defect{first: fmt.Sprintf("%.200s at %s", untrusted.Clean(fmt.Sprint(value)), Panicked())}
	}
	d.seen[what].count++
}

// Panicked returns where a panic began, "sequence.go:87". Only the deferred function that has
// recovered from the panic may call it.
func Panicked() string {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for began := false; ; {
		f, more := frames.Next()
		switch {
		case f.Function == "runtime.gopanic":
			began = true
		case began && !strings.HasPrefix(f.Function, "runtime."):
			return fmt.Sprintf("%s:%d", path.Base(f.File), f.Line)
		}
		if !more {
			return "an unknown place"
		}
	}
}

// Warnings returns a sentence for each kind of item that panics lost, with the place of the first
// panic.
func (d *List) Warnings() (list []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(d.seen)) {
		x := d.seen[what]
		list = append(list, fmt.Sprintf("an internal error lost %s %d times, please report it: %s", what, x.count, x.first))
	}
	return list
}
