// SPDX-License-Identifier: Apache-2.0

package gpuusage

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// NVIDIA's device nodes, /dev/nvidia0 and on, are character devices of this major number. Two of it
// are no GPUs.
const (
	nvidiaMajor   = 195
	nvidiaModeset = 254
	nvidiaControl = 255

	nodeName     = "nvidia"
	maxLookedAt  = 1 << 14 // descriptors of a process, from the lowest on, and entries of its /dev
	nodePatience = 500 * time.Millisecond
)

// OpenGPUs returns the minor numbers of the GPUs whose device nodes a process has open, in order:
// CUDA opens those of all GPUs that it may use when it starts. It takes at most 0.5 s.
func OpenGPUs(pid uint32) []uint32 {
	return minorsIn(pid, func() (*os.File, error) { return os.Open(fmt.Sprintf("/proc/%d/fd", procfs.Thread(pid))) }, func(dir *os.File, entry string) (unix.Stat_t, bool) {
		var st unix.Stat_t
		link, err := os.Readlink(path.Join(dir.Name(), entry))
		// The process chooses the name, which only spares a look at files of network file systems.
		return st, err == nil && strings.HasPrefix(path.Base(link), nodeName) && unix.Fstatat(int(dir.Fd()), entry, &st, 0) == nil
	})
}

// nodesBelow returns the minor numbers of the GPUs that have device nodes in the /dev that a
// process sees.
func nodesBelow(pid uint32) []uint32 {
	open := func() (*os.File, error) {
		return untrusted.OpenFolderIn(fmt.Sprintf("/proc/%d/root", procfs.Thread(pid)), "dev")
	}
	return minorsIn(pid, open, func(dir *os.File, entry string) (unix.Stat_t, bool) {
		var st unix.Stat_t
		return st, strings.HasPrefix(entry, nodeName) && unix.Fstatat(int(dir.Fd()), entry, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
	})
}

// minorsIn returns the minor numbers of the entries of a folder of a process that are nodes of
// GPUs, in order; look returns false for an entry that cannot be one.
func minorsIn(pid uint32, open func() (*os.File, error), look func(dir *os.File, entry string) (unix.Stat_t, bool)) []uint32 {
	list, _ := procfs.Call(pid, nodePatience, func() (list []uint32, _ error) {
		dir, err := open()
		if err != nil {
			return nil, err
		}
		defer dir.Close()
		entries, _ := dir.Readdirnames(maxLookedAt)
		for _, entry := range entries {
			st, ok := look(dir, entry)
			if !ok || st.Mode&unix.S_IFMT != unix.S_IFCHR || unix.Major(st.Rdev) != nvidiaMajor {
				continue
			}
			if minor := unix.Minor(st.Rdev); minor != nvidiaModeset && minor != nvidiaControl {
				list = append(list, minor)
			}
		}
		slices.Sort(list)
		return slices.Compact(list), nil
	})
	return list
}
