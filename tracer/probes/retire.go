// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// origin is the place where a probed file was found: it shows when no process can map the file
// again.
type origin struct {
	file      *os.File // opened with O_PATH; nil if there is no origin
	namespace string   // mount namespace of the process that mapped it, "" if unknown
}

func originOf(l libraries.Mapped, f *os.File) origin {
	o := origin{}
	o.namespace, _ = os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", l.PID))
	if fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.O_PATH|unix.O_CLOEXEC, 0); err == nil {
		o.file = os.NewFile(uintptr(fd), l.Name)
	}
	return o
}

func (o *origin) close() {
	if o.file != nil {
		o.file.Close()
	}
	*o = origin{}
}

// unlinked reports whether the file was deleted, as by the upgrade of a package or the removal of a
// container.
func (o origin) unlinked() bool {
	var st unix.Stat_t
	return o.file != nil && unix.Fstat(int(o.file.Fd()), &st) == nil && st.Nlink == 0
}

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
