// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/libraries"
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
