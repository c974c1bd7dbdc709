// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/deadline"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// A file can be on a file system of its process (FUSE), which answers reads when it likes: reads of
// vramprof, and of the kernel where it sets a probe.
const (
	readPatience = 2 * time.Second
	// attachPatience is for all probes of a file: before Linux 6.6, each takes up to 0.1 s.
	attachPatience = 20 * time.Second
)

// patiently runs do with a descriptor of its own of a file that a process maps, as
// procfs.CallUnhurried does. Probes that come too late are detached again.
func patiently[T any](pid uint32, f *os.File, limit time.Duration, do func(*os.File) (*T, error)) (*T, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	own := os.NewFile(uintptr(fd), f.Name()) // the caller closes f; nobody closes own if do is not called
	var mu sync.Mutex
	var late bool
	var made *T
	value, err := procfs.CallUnhurried(pid, limit, func() (*T, error) {
		defer own.Close()
		value, err := do(own)
		mu.Lock()
		defer mu.Unlock()
		if set, ok := any(value).(*Set); late && ok && set != nil {
			set.Close()
		}
		made = value
		return value, err
	})
	if errors.Is(err, deadline.ErrStuck) {
		mu.Lock()
		defer mu.Unlock()
		if late = made == nil; !late {
			return made, nil
		}
	}
	return value, err
}
