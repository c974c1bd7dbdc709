// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/vramprof/vramprof/internal/procmaps"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// maxMaps limits how much of one /proc/PID/maps is read, in bytes. With PyTorch it has about 300
// KiB.
const maxMaps = 16 << 20

// readAllMaps lists the mappings of all CUDA processes from /proc/PID/maps, for callers without
// programs in the kernel. It leaves out processes that stall it.
func readAllMaps() ([]Mapped, error) {
	pids, err := procfs.PIDs()
	if err != nil {
		return nil, fmt.Errorf("scan mappings: %w", err)
	}
	return scanEach(pids, processPatience, lookAtMaps, func(uint32) {}).list, nil
}

// lookAtMaps scans one process by its /proc/PID/maps, which has the inode below overlayfs on the
// kernels without an iterator over one process.
func lookAtMaps(pid uint32) (scan, error) {
	var c collector
	exe := procfs.Exe(pid)
	err := eachMapping(pid, func(m procmaps.Mapping, thread uint32) bool {
		if l, ok := libraryOf(m, pid, thread, exe); ok {
			c.add(l)
		}
		return true
	})
	c.end()
	return scan{list: c.list}, err
}

// eachMapping calls f with the mappings of a process, in the order of their addresses, until f
// returns false, and with the thread under whose id they are: see procfs.Thread. An error means
// that the mappings could not be opened.
func eachMapping(pid uint32, f func(m procmaps.Mapping, thread uint32) bool) error {
	some, err := eachMappingIn(pid, f)
	if some || err != nil {
		return err
	}
	if thread := procfs.Thread(pid); thread != pid {
		_, err = eachMappingIn(thread, f)
	}
	return err
}

func eachMappingIn(thread uint32, f func(m procmaps.Mapping, thread uint32) bool) (some bool, err error) {
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", thread))
	if err != nil {
		return false, err
	}
	defer maps.Close()
	_ = procmaps.Each(io.LimitReader(maps, maxMaps), func(m procmaps.Mapping) bool { some = true; return f(m, thread) })
	return some, nil
}

// maxCode is how many mappings Code returns. A process with PyTorch has some 300.
const maxCode = 1 << 12

// Code lists the mappings of code of a process, at most maxCode, with their layers as System:
// whatever file has a function of that layer. It returns deadline.ErrStuck if the process stalls
// it.
func Code(pid uint32) ([]Mapped, error) {
	return procfs.Call(pid, processPatience, func() (list []Mapped, _ error) {
		return list, eachMapping(pid, func(m procmaps.Mapping, thread uint32) bool {
			if l, ok := codeOf(m, pid, thread); ok {
				l.Layer = cudaapi.System
				list = append(list, l)
			}
			return len(list) < maxCode
		})
	})
}

// libraryOf returns the mapping of a library of CUDA or PyTorch, or of the program, which is exe.
func libraryOf(m procmaps.Mapping, pid, thread uint32, exe string) (Mapped, bool) {
	l, ok := codeOf(m, pid, thread)
	layer, cuda := LayerOf(l.Name)
	if !ok || !cuda && m.Path != exe {
		return Mapped{}, false
	}
	l.Layer, l.Program = layer, !cuda
	return l, true
}

// codeOf returns a mapping of code that is a file's.
func codeOf(m procmaps.Mapping, pid, thread uint32) (Mapped, bool) {
	if !m.Executable || m.Inode == 0 {
		return Mapped{}, false
	}
	file, _ := procmaps.CutDeleted(m.Path)
	open := pathOf(thread, m.Start, m.End)
	return Mapped{
		PID: pid, File: keyOf(m.Major<<20|m.Minor, m.Inode, open), Name: untrusted.Clean(path.Base(file)), Address: m.Start, Path: open,
	}, true
}

// pathOf returns the path to a mapped file, by a thread of the process.
func pathOf(thread uint32, start, end uint64) string {
	return fmt.Sprintf("/proc/%d/map_files/%x-%x", thread, start, end)
}

// Range returns where the mapping begins and ends in its process, and false if it has no path in
// map_files.
func (l Mapped) Range() (start, end uint64, ok bool) {
	from, to, ok := strings.Cut(path.Base(l.Path), "-")
	if !ok {
		return 0, 0, false
	}
	start, err := strconv.ParseUint(from, 16, 64)
	if err != nil {
		return 0, 0, false
	}
	end, err = strconv.ParseUint(to, 16, 64)
	return start, end, err == nil && start < end
}

// Part is a part of a file in the memory of a process.
type Part struct {
	Start, End uint64
	Offset     uint64 // of Start in the file
}

// Parts reads from /proc/PID/maps which parts of the file are mapped now where l was: the process
// may have changed the rights of some, or may be another one with the same pid. It is for use in a
// procfs.Call: the process may stall it.
func (l Mapped) Parts() (list []Part, err error) {
	start, end, ok := l.Range()
	if !ok {
		return nil, nil
	}
	maps, err := procfs.ReadWaiting(l.PID, "maps", maxMaps)
	if err != nil {
		return nil, err
	}
	for m := range procmaps.All(maps) {
		// The kernel's list of l has the first bytes of a long name.
		if m.Start < end && m.End > start && m.Path != "" && strings.HasPrefix(untrusted.Clean(path.Base(m.Path)), l.Name) {
			list = append(list, Part{m.Start, m.End, m.Offset})
		}
	}
	return list, nil
}

// HasProbeArea reports whether the kernel has mapped its page for probes into a process: it does so
// when the process first calls a probed function, of any tool, and never removes it.
func HasProbeArea(pid uint32) bool { return hasProbeArea(procfs.Read(pid, "maps", maxMaps)) }

func hasProbeArea(maps []byte) bool {
	for m := range procmaps.All(maps) {
		if m.Inode == 0 && m.Path == "[uprobes]" {
			return true
		}
	}
	return false
}

// OfProcess lists the mappings of a CUDA process from /proc/PID/maps.
func OfProcess(pid uint32) ([]Mapped, error) {
	found, err := procfs.Call(pid, processPatience, func() (scan, error) { return lookAtMaps(pid) })
	return found.list, err
}

// MayMap reports whether /proc/PID/maps has a name like that of a CUDA library. It is quick; a scan
// decides.
func MayMap(pid uint32) bool {
	maps := procfs.Read(pid, "maps", maxMaps)
	return bytes.Contains(maps, []byte("/libcud")) || bytes.Contains(maps, []byte("/libc10.so"))
}
