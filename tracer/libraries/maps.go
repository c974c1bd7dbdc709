// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/functions"
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
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return scan{}, err
	}
	defer f.Close()
	return scan{list: readMaps(f, pid, procfs.Exe(pid))}, nil
}

// readMaps lists the libraries of a CUDA process in its /proc/PID/maps, and the program itself, which
// is exe.
func readMaps(r io.Reader, pid uint32, exe string) []Mapped {
	var c collector
	lines := bufio.NewScanner(io.LimitReader(r, maxMaps))
	lines.Buffer(nil, 64<<10) // a path has at most 4 KiB, or 16 KiB if each byte is escaped as \012
	for lines.Scan() {
		if l, ok := parseMapping(lines.Text(), pid, exe); ok {
			c.add(l)
		}
	}
	c.end()
	return c.list
}

// maxCode is how many mappings Code returns. A process with PyTorch has some 300.
const maxCode = 1 << 12

// Code lists the mappings of code of a process, at most maxCode, with their layers as System: whatever
// file has a function of that layer. It returns patience.ErrStuck if the process stalls it.
func Code(pid uint32) ([]Mapped, error) {
	return procfs.Call(pid, processPatience, func() (list []Mapped, _ error) {
		maps, err := procfs.ReadWaiting(pid, "maps", maxMaps)
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(maps) {
			if l, _, ok := parseCode(strings.TrimSuffix(string(line), "\n"), pid); ok && len(list) < maxCode {
				l.Layer = functions.System
				list = append(list, l)
			}
		}
		return list, nil
	})
}

// parseMapping parses a line of a library of CUDA or PyTorch, or of the program, which is exe.
func parseMapping(line string, pid uint32, exe string) (Mapped, bool) {
	l, file, ok := parseCode(line, pid)
	layer, cuda := LayerOf(l.Name)
	l.Layer, l.Program = layer, !cuda
	if !ok || !cuda && file != exe {
		return Mapped{}, false
	}
	return l, true
}

// parseCode parses a line of a mapping of code, such as
// "7f0c8a000000-7f0c8a021000 r-xp 00001000 fd:01 1234   /usr/lib/libcuda.so.1 (deleted)".
// It returns the file's path as the line has it, too.
func parseCode(line string, pid uint32) (l Mapped, file string, ok bool) {
	var fields [5]string
	rest := line
	for i := range fields {
		fields[i], rest, ok = strings.Cut(strings.TrimLeft(rest, " "), " ")
		if !ok {
			return l, file, false
		}
	}
	file = strings.TrimLeft(rest, " ")
	name := path.Base(strings.TrimSuffix(file, " (deleted)"))
	if !strings.Contains(fields[1], "x") {
		return l, file, false
	}
	var start, end uint64
	var major, minor uint32
	if _, err := fmt.Sscanf(fields[0], "%x-%x", &start, &end); err != nil {
		return l, file, false
	}
	if _, err := fmt.Sscanf(fields[3], "%x:%x", &major, &minor); err != nil {
		return l, file, false
	}
	inode, err := strconv.ParseUint(fields[4], 10, 64)
	if err != nil || inode == 0 {
		return l, file, false
	}
	open := fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, start, end)
	return Mapped{
		PID: pid, File: keyOf(major<<20|minor, inode, open), Name: untrusted.Clean(name), Address: start, Path: open,
	}, file, true
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

// Parts reads from /proc/PID/maps which parts of the file are mapped now where l was: the process may
// have changed the rights of some, or may be another one with the same pid. It is for use in a
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
	for line := range bytes.Lines(maps) {
		fields := strings.Fields(string(line))
		if len(fields) < 6 || !strings.HasPrefix(untrusted.Clean(path.Base(strings.TrimSuffix(string(line), "\n"))), l.Name) {
			continue // the kernel's list of l has the first bytes of a long name
		}
		from, to, _ := strings.Cut(fields[0], "-")
		p := Part{Start: hex(from), End: hex(to), Offset: hex(fields[2])}
		if p.Start < end && p.End > start {
			list = append(list, p)
		}
	}
	return list, nil
}

// hex returns 0 for what is no number.
func hex(digits string) uint64 {
	n, _ := strconv.ParseUint(digits, 16, 64)
	return n
}

// HasProbeArea reports whether the kernel has mapped its page for probes into a process: it does so
// when the process first calls a probed function, of any tool, and never removes it.
func HasProbeArea(pid uint32) bool { return probeArea.Match(procfs.Read(pid, "maps", maxMaps)) }

// A path that ends the same follows the number of an inode that is not 0.
var probeArea = regexp.MustCompile(`(?m) 00:00 0 +\[uprobes\]$`)

// MayMap reports whether /proc/PID/maps has a name like that of a CUDA library. It is quick; a scan
// decides.
func MayMap(pid uint32) bool {
	maps := procfs.Read(pid, "maps", maxMaps)
	return bytes.Contains(maps, []byte("/libcud")) || bytes.Contains(maps, []byte("/libc10.so"))
}
