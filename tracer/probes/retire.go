// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"strconv"

	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// Retire detaches the probes from files that no process maps or can map again, because the file was
// deleted or the mount namespace of its container has ended: a probe keeps the file's disk space
// and its mount in use. Retire forgets files that could not be probed as soon as no process maps
// them. Of files that a process may map again it keeps the latest maxIdle. It probes files that no
// process has changed in its memory any more. found lists what all processes map now, except those
// that stall scans: they map what they mapped before.
func (s *Files) Retire(found []libraries.Mapped, stalled map[uint32]bool) {
	s.retired++
	found = append(found, s.mapped.ofProcesses(stalled)...)
	mapped := map[libraries.FileKey]bool{}
	for _, l := range found {
		mapped[l.File] = true
	}
	var namespaces map[string]bool
	var gone []libraries.FileKey
	for key, x := range s.known {
		if mapped[key] {
			x.idle = 0
			continue
		}
		if x.idle == 0 {
			x.idle = s.retired
		}
		if x.probes != nil && !x.origin.unlinked() {
			if x.origin.namespace == "" {
				continue
			}
			if namespaces == nil {
				namespaces = mountNamespaces()
			}
			if namespaces[x.origin.namespace] {
				continue // another process may load it, and needs the probes at once
			}
		}
		gone = append(gone, key)
	}
	s.drop(gone)
	s.retireIdle()
	detach(s.takeRequests(func(pid uint32) bool { return !procfs.Exists(pid) })...)
	s.probeUnpatched(found)
}

// maxIdle is how many files keep their probes that no process maps. An environment for each job
// leaves a few files behind that no process will ever map.
const maxIdle = 64

// retireIdle detaches the probes from the files that no process has mapped for longest.
func (s *Files) retireIdle() {
	var idle []libraries.FileKey
	for key, x := range s.known {
		if x.idle != 0 {
			idle = append(idle, key)
		}
	}
	slices.SortFunc(idle, func(a, b libraries.FileKey) int { return cmp.Compare(s.known[b].idle, s.known[a].idle) })
	s.drop(idle[min(maxIdle, len(idle)):])
}

// ForgetProcesses forgets the counts of files of processes that have ended.
func (s *Files) ForgetProcesses() {
	maps.DeleteFunc(s.tried, func(pid uint32, _ int) bool { return !procfs.Exists(pid) })
}

// mountNamespaces returns the mount namespaces of all processes, as "mnt:[4026531841]".
func mountNamespaces() map[string]bool {
	list := map[string]bool{}
	proc, err := os.Open("/proc")
	if err != nil {
		return list
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1)
	for _, name := range names {
		if _, err := strconv.ParseUint(name, 10, 32); err != nil {
			continue
		}
		if namespace, err := os.Readlink("/proc/" + name + "/ns/mnt"); err == nil {
			list[namespace] = true
		}
	}
	return list
}
