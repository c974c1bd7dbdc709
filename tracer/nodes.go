// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/patience"
)

// NVIDIA's device nodes, /dev/nvidia0 and on, are character devices of this major number. Some of it are no GPUs.
const (
	nvidiaMajor  = 195
	nvidiaCtl    = 255
	nvidiaModes  = 254
	nodeName     = "nvidia"
	maxLookedAt  = 1 << 14 // descriptors of a process, from the lowest on, and entries of its /dev
	nodePatience = 500 * time.Millisecond
)

// openGPUs lists the minor numbers of the GPUs whose device nodes a process has open: CUDA
// opens those of all GPUs that it may use when it starts.
func openGPUs(pid uint32) []uint32 {
	folder := fmt.Sprintf("/proc/%d/fd", pid)
	return minors(func() []string {
		return named(folder, func(name string) string {
			link, _ := os.Readlink(path.Join(folder, name))
			return path.Base(link)
		})
	}, func(file string) (st unix.Stat_t, err error) { return st, unix.Stat(file, &st) })
}

// nodesBelow lists the GPUs that have device nodes in the /dev that a process sees.
func nodesBelow(pid uint32) []uint32 {
	folder := fmt.Sprintf("/proc/%d/root/dev", pid)
	return minors(func() []string { return named(folder, func(name string) string { return name }) },
		func(file string) (st unix.Stat_t, err error) { return st, unix.Lstat(file, &st) })
}

// named lists the files of a folder that are called like a GPU's node. The name, which is the process's to choose, only
// spares a look at other files: they may lie where the kernel has to ask somebody.
func named(folder string, nameOf func(entry string) string) (list []string) {
	f, err := os.Open(folder)
	if err != nil {
		return nil
	}
	defer f.Close()
	entries, _ := f.Readdirnames(maxLookedAt)
	for _, entry := range entries {
		if strings.HasPrefix(nameOf(entry), nodeName) {
			list = append(list, path.Join(folder, entry))
		}
	}
	return list
}

// minors lists those of the files that are nodes of GPUs, in order.
func minors(files func() []string, stat func(file string) (unix.Stat_t, error)) []uint32 {
	list, _ := patience.Call(nodePatience, func() (list []uint32, _ error) {
		for _, file := range files() {
			st, err := stat(file)
			if err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || unix.Major(st.Rdev) != nvidiaMajor {
				continue
			}
			if minor := unix.Minor(st.Rdev); minor != nvidiaCtl && minor != nvidiaModes {
				list = append(list, minor)
			}
		}
		slices.Sort(list)
		return slices.Compact(list), nil
	})
	return list
}
