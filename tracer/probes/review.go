// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf/link"
)

// review detaches the probes of wrappers that are not needed, and attaches those that may be. f is
// the wrappers' file. fileID returns the unwinder's id of it, and false while it is unknown. With
// keep, all wrappers have their probes from now on.
func (p *Prober) review(f *os.File, set *Set, fileID func() (uint64, bool), pace Pace, keep bool) error {
	now := time.Now()
	lost := keep || set.code != nil && set.code.unnamed != 0 && p.wrappers.calls(set.code.unnamed).alone != set.unnamed
	var executable *link.Executable
	var wait sync.WaitGroup
	defer wait.Wait()
	for _, w := range set.wrappers {
		switch calls := p.wrappers.calls(w.number); w.stage {
		case stageProbed:
			switch {
			case calls.alone != w.seen.alone || lost:
				w.stage = stageKept
			case calls.inside-w.seen.inside >= enoughCalls && p.name(set, fileID):
				w.stage, w.since = stageDetached, now
				wait.Go(func() { w.detach(p.wrappers) }) // at the same time, as in Set.Close
			}
		case stageDetached:
			if !lost && now.Sub(w.since) < pace.Look {
				continue
			}
			if executable == nil {
				var err error
				if executable, err = executableOf(f); err != nil {
					return err
				}
			}
			if err := p.attachWrapper(executable, w); err != nil {
				w.since = now // try again later
				return fmt.Errorf("attach %s: %w", w.at.Name, err)
			}
		}
	}
	return nil
}

// name tells the kernel half where the code of the wrappers is. It returns false if it cannot be
// told: then their probes stay.
func (p *Prober) name(set *Set, fileID func() (uint64, bool)) bool {
	if set.code != nil || len(set.wrappers) == 0 {
		return true
	}
	id, ok := fileID()
	if !ok {
		return false
	}
	code, err := p.code.add(id, set.wrappers, set.library, p.wrappers)
	if err != nil {
		return false // there is no room
	}
	set.code, set.unnamed = code, p.wrappers.calls(code.unnamed).alone
	return true
}

func (s *Files) reviewWrappers() {
	for _, x := range s.known {
		if x.probes == nil || x.origin.file == nil || x.mapped.PID == 0 {
			continue
		}
		fileID := func() (uint64, bool) { return s.options.FileID(x.mapped) }
		if err := s.prober.review(x.origin.file, x.probes, fileID, s.options.Pace, s.driverUnseen); err != nil {
			s.options.Warn(0, fmt.Sprintf("probe %s: %v", x.mapped.Name, err))
		}
	}
}
