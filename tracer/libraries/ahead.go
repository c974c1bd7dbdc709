// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/functions"
)

// Where the driver's library lies: in distributions, in containers with the
// NVIDIA runtime, with the GPU operator, under WSL.
var driverFolders = []string{
	"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib",
	"/usr/local/nvidia/lib64", "/run/nvidia/driver/usr/lib/x86_64-linux-gnu", "/usr/lib/wsl/lib",
}

// maxTried bounds what is remembered of containers, many of which are long gone.
const maxTried = 1 << 14

// Ahead maps driver libraries into our own process before anybody else uses
// them, so that the scan finds the very file, below overlayfs, and it is probed by the time that a
// process loads it. cudart loads the driver in its first call; a probe set only after that misses calls.
type Ahead struct {
	tried map[string]bool // mount namespace and folder
	maps  [][]byte
}

// NewAhead returns an Ahead that has looked into no folder yet.
func NewAhead() *Ahead { return &Ahead{tried: map[string]bool{}} }

// Prepare maps what the process would load as libcuda.so.1. The names come
// from its environment and its root: they are opened inside that root, and what they lead to
// is only ever mapped, never run.
func (a *Ahead) Prepare(pid uint32, environ []string) {
	var folders []string
	for _, variable := range environ {
		if list, ok := strings.CutPrefix(variable, "LD_LIBRARY_PATH="); ok {
			folders = strings.Split(list, ":")
		}
	}
	if len(folders) > 64 {
		folders = folders[:64]
	}
	root := fmt.Sprintf("/proc/%d/root", pid)
	namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		return
	}
	for _, folder := range append(folders, driverFolders...) {
		if !path.IsAbs(folder) {
			continue
		}
		key := namespace + path.Clean(folder)
		if a.tried[key] {
			continue
		}
		if len(a.tried) >= maxTried {
			clear(a.tried)
		}
		a.tried[key] = true
		if f, err := untrusted.OpenIn(root, path.Join(folder, "libcuda.so.1")); err == nil {
			if m, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE); err == nil {
				a.maps = append(a.maps, m)
			}
			f.Close()
		}
	}
}

// WithoutDriver returns the processes in found, other than this one, that map libraries of CUDA but
// not the driver's, in ascending order.
func WithoutDriver(found []Mapped) []uint32 {
	have := map[uint32]bool{ownPID: true}
	for _, l := range found {
		have[l.PID] = have[l.PID] || l.Layer == functions.Driver && !l.Program
	}
	maps.DeleteFunc(have, func(_ uint32, driver bool) bool { return driver })
	return slices.Sorted(maps.Keys(have))
}

// Any reports whether files are mapped.
func (a *Ahead) Any() bool { return len(a.maps) > 0 }

// Close unmaps the files.
func (a *Ahead) Close() {
	for _, m := range a.maps {
		_ = unix.Munmap(m)
	}
	a.maps = nil
}
