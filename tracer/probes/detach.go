// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"sync"

	"github.com/cilium/ebpf/link"

	"github.com/vramprof/vramprof/tracer/libraries"
)

// Close detaches the probes.
func (s *Set) Close() { detach(s) }

// maxDetaching is how many probes are detached at the same time: each takes a thread.
const maxDetaching = 256

// add takes a link of a set.
func (s *Set) add(l link.Link, isReturn bool) {
	if isReturn {
		s.returns = append(s.returns, l)
	} else {
		s.links = append(s.links, l)
	}
}

// detach detaches the probes of all sets at the same time. For each link the kernel waits until no
// task runs in a probe, some 40 ms, or 0.1 s without uprobe_multi. Links that are closed at the same
// time wait together. The returns come last: a call whose return is not seen would count as the one
// around the thread's next calls.
func detach(sets ...*Set) {
	var entries, returns []func()
	for _, s := range sets {
		for _, l := range s.links {
			entries = append(entries, func() { l.Close() })
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
	s.links, s.returns, s.wrappers, s.code = nil, nil, nil, nil
}

// Close detaches all probes; see detach.
func (s *Files) Close() {
	var sets []*Set
	for key, x := range s.known {
		sets = append(sets, s.takeProbes(x)...)
		x.origin.close()
		delete(s.known, key)
	}
	sets = append(sets, s.takeRequests(func(uint32) bool { return true })...)
	for key, set := range s.loaders {
		sets = append(sets, set)
		delete(s.loaders, key)
	}
	detach(sets...)
}

// drop detaches the probes from files, and forgets them.
func (s *Files) drop(keys []libraries.FileKey) {
	var sets []*Set
	for _, key := range keys {
		x := s.known[key]
		sets = append(sets, s.takeProbes(x)...)
		x.origin.close()
		if x.holder != ownPID {
			s.places.Give(x.holder)
		}
		delete(s.known, key)
	}
	detach(sets...)
}

// takeProbes returns the probes of a file, which has none any more, for the caller to detach.
func (s *Files) takeProbes(x *file) (sets []*Set) {
	if x.probes != nil {
		sets = append(sets, x.probes)
	}
	for pid, here := range x.apart {
		sets = append(sets, here.probes)
		s.apart.Give(pid)
	}
	x.probes, x.apart = nil, nil
	return sets
}
