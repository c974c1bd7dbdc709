// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"fmt"
	"maps"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// origin is where a probed file was found, to know when nobody can use it any more.
type origin struct {
	file      *os.File // opened without access; nil for one that could not be probed
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

func (o origin) close() {
	if o.file != nil {
		o.file.Close()
	}
}

// unlinked reports whether the file has no name any more: a package was upgraded, or a container removed.
func (o origin) unlinked() bool {
	var st unix.Stat_t
	return o.file != nil && unix.Fstat(int(o.file.Fd()), &st) == nil && st.Nlink == 0
}

// Retire takes the probes out of files that nobody maps and nobody can map again: they have no name,
// or the mounts of their container are gone. A probe keeps its file, with its disk space, and the
// mount that it lies on. Files that could not be probed are forgotten as soon as nobody maps them.
// found is what all processes map now.
func (s *Files) Retire(found []libraries.Mapped) {
	mapped := map[libraries.FileKey]bool{}
	for _, l := range found {
		mapped[l.File] = true
	}
	var namespaces map[string]bool
	for key, x := range s.known {
		if mapped[key] {
			continue
		}
		if x.probes != nil && !x.origin.unlinked() {
			if x.origin.namespace == "" {
				continue
			}
			if namespaces == nil {
				namespaces = mountNamespaces()
			}
			if namespaces[x.origin.namespace] {
				continue // another process may load it: it is probed already then
			}
		}
		x.close()
		if x.holder != ownPID {
			s.places.Give(x.holder)
		}
		delete(s.known, key)
	}
}

// ForgetProcesses forgets how many files were first seen in processes that are gone.
func (s *Files) ForgetProcesses() {
	maps.DeleteFunc(s.tried, func(pid uint32, _ int) bool { return !procfs.Exists(pid) })
}

// mountNamespaces lists those that have processes ("mnt:[4026531841]").
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
