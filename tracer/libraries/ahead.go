// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/functions"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// driverFolders are the folders of the driver's library in distributions, in containers with the
// NVIDIA runtime, with the GPU operator and under WSL.
var driverFolders = []string{
	"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib",
	"/usr/local/nvidia/lib64", "/run/nvidia/driver/usr/lib/x86_64-linux-gnu", "/usr/lib/wsl/lib",
}

// maxTried limits the folders that are remembered: many of their containers ended long ago.
const maxTried = 1 << 14

// Ahead maps driver libraries into this process before other processes load them. A scan then finds
// the same inode below overlayfs, so the library is probed before a process loads it. cudart loads
// the driver in its first call, and probes that are attached later miss calls.
//
// Ahead has no lock: only the goroutine that scans may call its methods.
type Ahead struct {
	tried map[string]bool // by mount namespace and folder
	since time.Time       // of the first in tried
	maps  [][]byte
}

// NewAhead returns an Ahead that has not searched any folder yet.
func NewAhead() *Ahead { return &Ahead{tried: map[string]bool{}} }

// triedFor is how long a folder is not searched again: the driver may have been installed since, and
// the kernel gives a namespace the number of another one that has ended.
const triedFor = time.Hour

// Forget has folders be searched again that were long ago.
func (a *Ahead) Forget(now time.Time) {
	if now.Sub(a.since) >= triedFor {
		a.tried, a.since = map[string]bool{}, now
	}
}

// Prepare maps the file that a process would load as libcuda.so.1. The process controls the paths,
// through its environment and its root: they are resolved inside that root, and the file is mapped
// but never executed. Prepare searches each folder of a mount namespace once.
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

// withoutDriver returns the pids in found, except this process, that do not map the driver's
// library, in ascending order.
func withoutDriver(found []Mapped) []uint32 {
	have := map[uint32]bool{ownPID: true}
	for _, l := range found {
		have[l.PID] = have[l.PID] || l.Layer == functions.Driver && !l.Program
	}
	maps.DeleteFunc(have, func(_ uint32, driver bool) bool { return driver })
	return slices.Sorted(maps.Keys(have))
}

// layouts is a Scanner, or an imitation of one in tests.
type layouts interface {
	ScanLayouts(pid uint32) ([]Mapped, map[uint32]uint64, error)
}

// Scan scans one process, or all with pid 0, like Scanner.ScanLayouts. For processes in the result
// that have not loaded the driver yet and that are wanted, it maps the driver's library, and adds
// the new mappings of this process to the result. With everyone, it also maps this host's library.
// The mappings stay until Close, which must follow once the files are probed.
func (a *Ahead) Scan(scanner layouts, pid uint32, everyone bool, wanted func(pid uint32) bool) ([]Mapped, map[uint32]uint64, error) {
	found, list, err := scanner.ScanLayouts(pid)
	if err != nil {
		return nil, nil, err
	}
	if everyone {
		a.Prepare(ownPID, nil)
	}
	for _, pid := range withoutDriver(found) {
		if wanted(pid) {
			a.Prepare(pid, procfs.Environ(pid))
		}
	}
	if len(a.maps) == 0 {
		return found, list, nil
	}
	own, _, err := scanner.ScanLayouts(ownPID)
	if err != nil {
		return nil, nil, err
	}
	found = slices.DeleteFunc(found, func(l Mapped) bool { return l.IsOwn() })
	return append(found, own...), list, nil
}

// Close unmaps the files.
func (a *Ahead) Close() {
	for _, m := range a.maps {
		_ = unix.Munmap(m)
	}
	a.maps = nil
}
