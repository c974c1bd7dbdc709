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
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/fileid"
	"github.com/vramprof/vramprof/tracer/ledger/quota"
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

// Limits of the files that are mapped at a time. The users of processes share them out by the rule
// of quota.Quota: one process has at most 16.
const (
	maxAhead = 64
	maxNamed = 4 // in folders that the environment of a process names
)

// Ahead maps driver libraries into this process before other processes load them. A scan then finds
// the same inode below overlayfs, so the library is probed before a process loads it. cudart loads
// the driver in its first call, and probes that are attached later miss calls.
//
// Ahead has no lock: only the goroutine that scans may call its methods.
type Ahead struct {
	tried  map[string]bool // by mount namespace and folder
	since  time.Time       // of the first in tried
	maps   []prepared
	inodes map[fileid.ID]bool // of maps
	places quota.ByProcess    // of maps
}

// prepared is a file that is mapped for the sake of a process.
type prepared struct {
	memory []byte
	pid    uint32
}

// NewAhead returns an Ahead that has not searched any folder yet.
func NewAhead() *Ahead {
	return &Ahead{tried: map[string]bool{}, inodes: map[fileid.ID]bool{}, places: quota.NewByProcess(maxAhead)}
}

// triedFor is how long a folder is not searched again: the driver may have been installed since,
// and the kernel gives a namespace the number of another one that has ended.
const triedFor = time.Hour

// Forget has folders be searched again that were long ago.
func (a *Ahead) Forget(now time.Time) {
	if now.Sub(a.since) >= triedFor {
		a.tried, a.since = map[string]bool{}, now
	}
}

// Prepare maps the file that a process would load as libcuda.so.1. The process controls the paths,
// through its environment and its root: they are resolved inside that root, and the file is mapped
// but never executed. Prepare searches each folder of a mount namespace once. It reports whether
// all was mapped: else it is to be called again after Close.
func (a *Ahead) Prepare(pid uint32, environ []string) bool {
	namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		return true
	}
	named := a.untried(namespace, namedFolders(environ))
	files, err := openDrivers(pid, named, maxNamed)
	if err == nil {
		var more []*os.File
		usual := a.untried(namespace, driverFolders)
		more, err = openDrivers(pid, usual, len(usual))
		files, named = append(files, more...), append(named, usual...)
	}
	all := true
	for _, f := range files {
		all = all && a.prepare(pid, f)
		f.Close()
	}
	if err != nil || !all {
		return err != nil // it stalls who opens its files
	}
	if len(a.tried) >= maxTried {
		clear(a.tried)
	}
	for _, folder := range named {
		a.tried[namespace+folder] = true
	}
	return true
}

// namedFolders returns the first folders in which a process searches its libraries.
func namedFolders(environ []string) []string {
	const most = 64
	var folders []string
	for _, variable := range environ {
		if list, ok := strings.CutPrefix(variable, "LD_LIBRARY_PATH="); ok {
			folders = strings.SplitN(list, ":", most+1)
		}
	}
	return folders[:min(most, len(folders))]
}

// untried returns the folders that were not searched before.
func (a *Ahead) untried(namespace string, folders []string) (list []string) {
	for _, folder := range folders {
		if folder = path.Clean(folder); path.IsAbs(folder) && !a.tried[namespace+folder] {
			list = append(list, folder)
		}
	}
	return list
}

// openDrivers opens the driver's library in folders below the root of a process, in at most so
// many.
func openDrivers(pid uint32, folders []string, most int) ([]*os.File, error) {
	return procfs.Call(pid, processPatience, func() (files []*os.File, _ error) {
		for _, folder := range folders {
			if f, err := untrusted.OpenIn(fmt.Sprintf("/proc/%d/root", procfs.Thread(pid)), path.Join(folder, "libcuda.so.1")); err == nil && len(files) < most {
				files = append(files, f)
			} else if err == nil {
				f.Close()
				break
			}
		}
		return files, nil
	})
}

// prepare maps a file, unless it is mapped already. It reports whether there was room.
func (a *Ahead) prepare(pid uint32, f *os.File) bool {
	id, err := fileid.Stat(int(f.Fd()))
	if err != nil || a.inodes[id] {
		return true
	}
	if !a.places.Take(pid, procfs.User(pid)) {
		return false
	}
	m, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		a.places.Give(pid)
		return true
	}
	a.inodes[id] = true
	a.maps = append(a.maps, prepared{m, pid})
	return true
}

// withoutDriver returns the pids in found, except this process, that do not map the driver's
// library, in ascending order.
func withoutDriver(found []Mapped) []uint32 {
	have := map[uint32]bool{ownPID: true}
	for _, l := range found {
		have[l.PID] = have[l.PID] || l.Layer == cudaapi.Driver && !l.Program
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
// The mappings stay until Close, which must follow once the files are probed. later has the
// processes for which there was no room: they must be scanned again after Close.
func (a *Ahead) Scan(scanner layouts, pid uint32, everyone bool, wanted func(pid uint32) bool) (found []Mapped, list map[uint32]uint64, later []uint32, err error) {
	found, list, err = scanner.ScanLayouts(pid)
	if err != nil {
		return nil, nil, nil, err
	}
	if everyone {
		a.Prepare(ownPID, nil)
	}
	for _, pid := range withoutDriver(found) {
		if wanted(pid) && !a.Prepare(pid, procfs.Environ(pid)) {
			later = append(later, pid)
		}
	}
	if len(a.maps) == 0 {
		return found, list, later, nil
	}
	own, _, err := scanner.ScanLayouts(ownPID)
	if err != nil {
		return nil, nil, nil, err
	}
	found = slices.DeleteFunc(found, func(l Mapped) bool { return l.IsOwn() })
	return append(found, a.sakes(own)...), list, later, nil
}

// sakes notes for whose sake this process maps its libraries.
func (a *Ahead) sakes(own []Mapped) []Mapped {
	for i := range own {
		for _, m := range a.maps {
			if own[i].Address == uint64(uintptr(unsafe.Pointer(&m.memory[0]))) {
				own[i].For = m.pid
			}
		}
	}
	return own
}

// Close unmaps the files.
func (a *Ahead) Close() {
	for _, m := range a.maps {
		_ = unix.Munmap(m.memory)
		a.places.Give(m.pid)
	}
	a.maps = nil
	clear(a.inodes)
}
