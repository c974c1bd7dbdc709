// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"fmt"
	"sync"
	"time"

	"github.com/vramprof/vramprof/tracer/functions"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/libraries"
)

// A thread that chose its device before the attach may not do so again. For LearnFor, functions are
// probed that programs call often and that tell what is current; again for as long as allocations
// come without a device: after learnPause, and up to maxLearnPause where nothing is told, but sooner
// for a thread that was not waited for yet.
const (
	LearnFor      = time.Second
	learnPause    = 5 * time.Second
	maxLearnPause = 30 * time.Second
	newLearnPause = 2 * time.Second
	maxWaitedFor  = 1 << 12
)

// Learner decides when the brief probes are set, and has them while they are. The goroutine that
// reads events calls Want, which never waits; the one that owns Files calls all other methods.
type Learner struct {
	sets []*Set // the latter's

	mu     sync.Mutex // guards what follows, never for long
	wantAt uint64     // ns of CLOCK_MONOTONIC; not before then is it asked for again
	newAt  uint64     // likewise, for a thread that is not in waited
	pause  time.Duration
	waited map[uint32]bool // threads that had no device when, or just before, the probes were set
	active bool
}

// Want takes an event, and reports whether the brief probes are to be set: an allocation came
// without its device although its process has several GPUs.
func (l *Learner) Want(e *ledger.Event, single bool) bool {
	if e.Op != ledger.Learn && (e.Op != ledger.Alloc || e.Device != ledger.UnknownDevice || e.Kind.OnHost() || e.Space == ledger.Physical || single) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Op == ledger.Learn { // it is worth it
		delete(l.waited, e.TID)
		l.pause = 0
		l.wantAt = min(l.wantAt, e.Time+uint64(LearnFor+learnPause))
		return false
	}
	at := l.newAt
	if l.waited[e.TID] {
		at = l.wantAt
	}
	if !l.active && e.Time < at {
		return false
	}
	if l.waited == nil || len(l.waited) >= maxWaitedFor {
		l.waited = make(map[uint32]bool)
	}
	l.waited[e.TID] = true
	if l.active {
		return false
	}
	l.active = true
	l.pause = min(max(2*l.pause, learnPause), maxLearnPause)
	l.wantAt = e.Time + uint64(LearnFor+l.pause)
	l.newAt = e.Time + uint64(LearnFor+newLearnPause)
	return true
}

// Begin sets the brief probes in all files that are probed, unless they are set, or there is a
// single GPU. Once they are asked for, end is called after a second, from a goroutine of its own,
// also after an error: what is set does not stay, and the next one may ask again. It has End called.
func (l *Learner) Begin(single bool, files *Files, scan func() ([]libraries.Mapped, error), end func()) error {
	l.setActive(!single)
	if single || len(l.sets) > 0 {
		return nil
	}
	time.AfterFunc(LearnFor, end)
	found, err := scan()
	if err != nil {
		return err
	}
	done := map[libraries.FileKey]bool{}
	for _, x := range found {
		if x.Layer == functions.Torch || !files.has(x.File) || done[x.File] {
			continue
		}
		f, err := x.OpenFile()
		if err != nil {
			continue // gone since
		}
		set, err := files.prober.AttachBrief(f, x.Layer)
		f.Close()
		if err != nil {
			return fmt.Errorf("learn the devices of threads from %s: %w", x.Name, err)
		}
		done[x.File] = true
		l.sets = append(l.sets, set)
	}
	return nil
}

// End takes the brief probes away.
func (l *Learner) End() {
	for _, set := range l.sets {
		set.Close()
	}
	l.sets = nil
	l.setActive(false)
}

func (l *Learner) setActive(active bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active = active
}
