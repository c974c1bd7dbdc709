// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"fmt"
	"sync"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// A thread that chose its device before the attach may never choose it again. So functions that
// programs call often and that report the current device are probed for LearnFor. This is repeated
// while allocations without a device arrive: after learnPause at first, after up to maxLearnPause
// if the probes report nothing, but after newLearnPause for a thread that is not in waited.
const (
	LearnFor      = time.Second
	learnPause    = 5 * time.Second
	maxLearnPause = 30 * time.Second
	newLearnPause = 2 * time.Second
	maxWaitedFor  = 1 << 12
)

// Learner decides when brief probes are attached, and owns them. The goroutine that reads events
// calls Want, which does not wait. The goroutine that owns Files calls all other methods.
type Learner struct {
	sets []*Set // the second goroutine's

	mu     sync.Mutex // guards the fields below, and is not held while probes are attached
	wantAt uint64     // earliest time of the next request, in ns of CLOCK_MONOTONIC
	newAt  uint64     // the same for a thread that is not in waited
	pause  time.Duration
	waited map[uint32]bool // threads whose allocations had no device when brief probes were requested
	active bool            // requested or attached
}

// Want takes an event, and reports whether it requests brief probes: it is an allocation without a
// device, although its process does not use a single GPU.
func (l *Learner) Want(e *ledger.Event, single bool) bool {
	if e.Op != ledger.Learn && (e.Op != ledger.Alloc || e.Device != ledger.UnknownDevice || e.Kind.OnHost() || e.Space == ledger.Physical || single) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Op == ledger.Learn { // the probes report devices
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

// Begin attaches brief probes to all probed files, unless they are attached or the machine has a
// single GPU. LearnFor later, and also after an error, it calls end in a goroutine of its own: end
// must have the owner of Files call End, which detaches the probes and allows the next request.
func (l *Learner) Begin(single bool, files *Files, scan func() ([]libraries.Mapped, error), end func()) error {
	l.setActive(!single)
	if single || len(l.sets) > 0 {
		return nil
	}
	// On a busy machine to attach takes longer than LearnFor.
	defer func() { time.AfterFunc(LearnFor, end) }()
	found, err := scan()
	if err != nil {
		return err
	}
	done := map[libraries.FileKey]bool{}
	for _, x := range found {
		pids := files.known[x.File].pids()
		if !x.Layer.IsCUDA() || len(pids) == 0 || done[x.File] {
			continue
		}
		f, err := x.OpenFile()
		if err != nil {
			continue // it was unmapped since the scan
		}
		done[x.File] = true
		for _, pid := range pids {
			var set *Set
			if set, err = files.prober.AttachBrief(f, x.Layer, pid); err == nil {
				l.sets = append(l.sets, set)
			} else if pid != 0 && !procfs.Exists(pid) {
				err = nil
			}
		}
		f.Close()
		if err != nil {
			return fmt.Errorf("learn the devices of threads from %s: %w", x.Name, err)
		}
	}
	return nil
}

// End detaches the brief probes.
func (l *Learner) End() {
	detach(l.sets...)
	l.sets = nil
	l.setActive(false)
}

func (l *Learner) setActive(active bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active = active
}
