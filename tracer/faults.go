// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/internal/untrusted"
)

// defects counts panics by what they cost: a panic must neither end the program, with all that was traced,
// nor go unseen.
type defects struct {
	mu   sync.Mutex
	seen map[string]*defect
}

type defect struct {
	count uint64
	first string // what the first one said, and where
}

// recovered is deferred by what may cost no more than itself; what says what that is: "an event".
func (d *defects) recovered(what string) {
	if r := recover(); r != nil {
		d.note(what, r)
	}
}

// note counts a panic. It must be called by the deferred function that has recovered.
func (d *defects) note(what string, value any) {
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

// Panicked is where a panic began, for the deferred function that has recovered from it: "booking.go:87".
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

func (d *defects) warnings() (list []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(d.seen)) {
		x := d.seen[what]
		list = append(list, fmt.Sprintf("a defect of vramprof cost %s %d times, please report it: %s", what, x.count, x.first))
	}
	return list
}

// faults says in words what the tracer and its kernel half counted, and what no figure of the books stands for.
func (t *Tracer) faults() (list []string) {
	for _, x := range []struct {
		counter uint32
		text    string
	}{
		{bpf.CounterNotFollowed, "children of traced processes were not followed, since there were too many: %d"},
		{bpf.CounterNotHeld, "libraries that the command loaded while nobody could be told, so that their first calls may be missed: %d"},
	} {
		var n uint64
		if err := t.coll.Maps["counters"].Lookup(x.counter, &n); err == nil && n > 0 {
			list = append(list, fmt.Sprintf(x.text, n))
		}
	}
	for _, text := range []string{t.unseenText(), t.silenceText(), t.lossText()} {
		if text != "" {
			list = append(list, text)
		}
	}
	return append(list, t.defects.warnings()...)
}

func (t *Tracer) unseenText() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unseen.text()
}

func (t *Tracer) silenceText() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.silence.text(t.begin)
}
