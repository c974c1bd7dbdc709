// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"slices"
	"sync"

	"github.com/cilium/ebpf/link"

	"github.com/vramprof/vramprof/tracer/probepoint"
)

// Set is the probes in one file. It keeps the links because the garbage collector closes those that
// nothing references. It belongs to the goroutine that attached it.
type Set struct {
	links     []link.Link // of entries
	returns   []link.Link
	functions []probepoint.Function
	reports   *reportProbe // of PyTorch; nil without

	wrappers []*wrapper
	library  bool        // the file is a library
	code     *codeOfFile // nil until a wrapper's probes are detached
	unnamed  uint64      // calls of code.unnamed before
	prober   *Prober     // has code and the numbers of wrappers
	pid      uint32      // the only process that has the probes; 0: all have them
}

// Functions returns the probed functions. The caller must not change them.
func (s *Set) Functions() []probepoint.Function { return s.functions }

// hasWrapper reports whether a function of the table has probes of its own.
func (s *Set) hasWrapper(id uint64) bool {
	return slices.ContainsFunc(s.wrappers, func(w *wrapper) bool { return w.function() == id })
}

// Close detaches the probes.
func (s *Set) Close() { detach(s) }

// add takes a link of a set.
func (s *Set) add(l link.Link, isReturn bool) {
	if isReturn {
		s.returns = append(s.returns, l)
	} else {
		s.links = append(s.links, l)
	}
}

// maxDetaching is how many probes are detached at the same time: each takes a thread.
const maxDetaching = 256

// detach detaches the probes of all sets at the same time. For each link the kernel waits until no
// task runs in a probe, some 40 ms, or 0.1 s without uprobe_multi. Links that are closed at the
// same time wait together. The returns come last: a call whose return is not seen would count as
// the one around the thread's next calls.
func detach(sets ...*Set) {
	var entries, returns []func()
	for _, s := range sets {
		for _, l := range s.links {
			entries = append(entries, func() { l.Close() })
		}
		if s.reports != nil {
			entries = append(entries, func() { s.prober.reports.remove(s.reports) })
		}
		for _, w := range s.wrappers {
			entries = append(entries, func() { w.detach(s.prober.wrappers) })
		}
		for _, l := range s.returns {
			returns = append(returns, func() { l.Close() })
		}
	}
	atOnce(entries)
	atOnce(returns)
	for _, s := range sets {
		s.forget()
	}
}

// atOnce takes steps at the same time, at most maxDetaching.
func atOnce(steps []func()) {
	var wait sync.WaitGroup
	defer wait.Wait()
	todo := make(chan func(), len(steps))
	for _, step := range steps {
		todo <- step
	}
	close(todo)
	for range min(len(steps), maxDetaching) {
		wait.Go(func() {
			for step := range todo {
				step()
			}
		})
	}
}

// forget gives back what detached probes had of the kernel half's tables.
func (s *Set) forget() {
	for _, w := range s.wrappers {
		s.prober.wrappers.give(w.number)
	}
	if s.code != nil {
		s.prober.code.drop(s.code, s.prober.wrappers)
	}
	s.links, s.returns, s.reports, s.wrappers, s.code = nil, nil, nil, nil, nil
}
