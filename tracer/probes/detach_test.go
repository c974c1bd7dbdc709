// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/libraries"
)

// waitingLink is a link that the kernel takes a second to close.
type waitingLink struct {
	link.Link
	closed *int
}

func (l waitingLink) Close() error {
	time.Sleep(time.Second)
	*l.closed++
	return nil
}

// probedFiles returns Files with the probes of some files, and counts those that were detached.
func probedFiles(t *testing.T, files int, linksOfEach int) (s *Files, mappings []libraries.Mapped, closed []int) {
	var x told
	s = x.files(false)
	closed = make([]int, files*linksOfEach)
	for n := range files {
		l := mapped(t, 1, cudaapi.Driver, fmt.Sprint("libcuda.so.", n), "x")
		set := &Set{}
		for k := range linksOfEach {
			set.links = append(set.links, waitingLink{closed: &closed[n*linksOfEach+k]})
		}
		s.known[l.File] = &file{probes: set, holder: 1}
		mappings = append(mappings, l)
	}
	return s, mappings, closed
}

func TestProbesOfAllFilesAreDetachedAtTheSameTime(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(s *Files)
	}{
		{"at the end", func(s *Files) { s.Close() }},
		{"when their container has gone", func(s *Files) {
			for _, x := range s.known {
				x.origin.namespace = "mnt:[0]"
			}
			s.Retire(nil, nil)
		}},
		{"of a look for devices", func(s *Files) {
			var l Learner
			for _, x := range s.known {
				l.sets = append(l.sets, x.probes)
			}
			l.End()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _, closed := probedFiles(t, 24, 10)
				begin := time.Now()
				c.do(s)
				if took := time.Since(begin); took != time.Second {
					t.Errorf("it took %v", took)
				}
				for n, times := range closed {
					if times != 1 {
						t.Fatalf("link %d was closed %d times", n, times)
					}
				}
			})
		})
	}
}

func TestFilesThatProcessesMapKeepTheirProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, mappings, closed := probedFiles(t, 2, 1)
		for _, x := range s.known {
			x.origin.namespace = "mnt:[0]"
		}
		s.Retire(mappings[:1], nil)
		if closed[0] != 0 || closed[1] != 1 || !s.has(mappings[0].File) || s.has(mappings[1].File) {
			t.Errorf("closed %v", closed)
		}
	})
}

// A call whose entry is seen and whose return is not would count as the one around later calls.
func TestReturnsAreDetachedAfterAllEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sets []*Set
		var entries, early int
		for range 3 {
			sets = append(sets, &Set{links: []link.Link{waitingLink{closed: &entries}}, returns: []link.Link{returnLink{entries: &entries, early: &early}}})
		}
		detach(sets...)
		if entries != 3 || early != 0 {
			t.Errorf("of 3 entries %d are closed, and %d returns were closed before them", entries, early)
		}
	})
}

// returnLink counts in early if it is closed before all three entries.
type returnLink struct {
	link.Link
	entries, early *int
}

func (l returnLink) Close() error {
	if *l.entries < 3 {
		*l.early++
	}
	return nil
}
