// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// maxMaps limits how much of one /proc/PID/maps is read, in bytes. With PyTorch it has about 300
// KiB.
const maxMaps = 16 << 20

// readAllMaps lists the mappings of all processes from /proc/PID/maps, for kernels without
// iterators over mappings (before Linux 5.12). There maps shows the inode below overlayfs.
func readAllMaps() ([]Mapped, error) {
	folder, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("scan mappings: %w", err)
	}
	defer folder.Close()
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("scan mappings: %w", err)
	}
	var pids []uint32
	for _, name := range names {
		if pid, err := strconv.ParseUint(name, 10, 32); err == nil {
			pids = append(pids, uint32(pid))
		}
	}
	slices.SortFunc(pids, cmp.Compare)
	var list []Mapped
	for _, pid := range pids {
		f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
		if err != nil {
			continue // the process has ended
		}
		exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		list = append(list, readMaps(f, pid, exe)...)
		f.Close()
	}
	return list, nil
}

// readMaps lists the libraries in a /proc/PID/maps, and the program itself, which is exe.
func readMaps(r io.Reader, pid uint32, exe string) (list []Mapped) {
	lines := bufio.NewScanner(io.LimitReader(r, maxMaps))
	lines.Buffer(nil, 64<<10) // a path has at most 4 KiB, or 16 KiB if each byte is escaped as \012
	for lines.Scan() {
		if l, ok := parseMapping(lines.Text(), pid, exe); ok {
			list = append(list, l)
		}
	}
	return list
}

// parseMapping parses a line such as
// "7f0c8a000000-7f0c8a021000 r-xp 00001000 fd:01 1234   /usr/lib/libcuda.so.1 (deleted)".
func parseMapping(line string, pid uint32, exe string) (l Mapped, ok bool) {
	var fields [5]string
	rest := line
	for i := range fields {
		fields[i], rest, ok = strings.Cut(strings.TrimLeft(rest, " "), " ")
		if !ok {
			return l, false
		}
	}
	file := strings.TrimLeft(rest, " ")
	name := path.Base(strings.TrimSuffix(file, " (deleted)"))
	layer, cuda := LayerOf(name)
	if !strings.Contains(fields[1], "x") || !cuda && file != exe {
		return l, false
	}
	var start, end uint64
	var major, minor uint32
	if _, err := fmt.Sscanf(fields[0], "%x-%x", &start, &end); err != nil {
		return l, false
	}
	if _, err := fmt.Sscanf(fields[3], "%x:%x", &major, &minor); err != nil {
		return l, false
	}
	inode, err := strconv.ParseUint(fields[4], 10, 64)
	if err != nil || inode == 0 {
		return l, false
	}
	open := fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, start, end)
	return Mapped{
		PID: pid, File: keyOf(major<<20|minor, inode, open), Layer: layer, Program: !cuda, Name: untrusted.Clean(name),
		Address: start, Path: open,
	}, true
}

// MayMap reports whether /proc/PID/maps has a name like that of a CUDA library. It is quick; a scan
// decides.
func MayMap(pid uint32) bool {
	maps := procfs.Read(pid, "maps", maxMaps)
	return bytes.Contains(maps, []byte("/libcud")) || bytes.Contains(maps, []byte("/libc10.so"))
}
