// SPDX-License-Identifier: Apache-2.0

package gpuprocs

import (
	"bytes"
	"cmp"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/procmaps"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// NVIDIA's device files are character devices of this major number: /dev/nvidia0 and on, and two
// that are no GPUs.
const (
	nvidiaMajor   = 195
	nvidiaModeset = 254
	nvidiaControl = 255

	nodeName   = "nvidia"
	bufferName = "/dmabuf:" // of the link to a dma-buf, and of its mapping
)

// Buffer is a dma-buf: memory of a device that one process exported and others imported. It lives
// until the last one has closed and unmapped it.
type Buffer struct {
	Inode    uint64 // the same for all processes that have the buffer
	Bytes    uint64 // 0 if it is unknown
	Exporter string // name of the driver that exported it, untrusted: "nvidia"; "" if it is unknown
	Mapped   bool   // has no descriptor in this process, only a mapping: Bytes is that of its mappings
}

// descriptors is what a process has open.
type descriptors struct {
	gpus     []uint32
	controls []int
	uvm      bool
	buffers  []Buffer
}

// descriptors reads the descriptors and mappings of a process, or of a thread of it, in a folder of
// /proc.
func (s *scanner) descriptors(pid uint32, folder string) descriptors {
	d, _ := procfs.Call(pid, patience, func() (d descriptors, _ error) {
		dir, err := os.Open(filepath.Join(folder, "fd"))
		if err != nil {
			return d, err
		}
		defer dir.Close()
		names, _ := dir.Readdirnames(maxDescriptors)
		for _, name := range names {
			link, err := os.Readlink(filepath.Join(dir.Name(), name))
			if err != nil {
				continue
			}
			switch {
			case strings.HasPrefix(link, bufferName):
				d.addBuffer(dir, folder, name)
			case strings.HasPrefix(path.Base(link), nodeName): // only spares a look at network file systems
				s.addNode(&d, dir, name)
			}
		}
		slices.Sort(d.gpus)
		d.gpus = slices.Compact(d.gpus)
		return d, nil
	})
	for _, b := range s.mapped(pid, folder) {
		if !slices.ContainsFunc(d.buffers, func(x Buffer) bool { return x.Inode == b.Inode }) {
			d.buffers = append(d.buffers, b)
		}
	}
	slices.SortFunc(d.buffers, func(a, b Buffer) int { return cmp.Compare(a.Inode, b.Inode) })
	return d
}

func (s *scanner) addNode(d *descriptors, dir *os.File, name string) {
	var st unix.Stat_t
	if unix.Fstatat(int(dir.Fd()), name, &st, 0) != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return
	}
	major, minor := unix.Major(st.Rdev), unix.Minor(st.Rdev)
	switch {
	case major == nvidiaMajor && minor == nvidiaControl:
		if n, err := strconv.Atoi(name); err == nil {
			d.controls = append(d.controls, n)
		}
	case major == nvidiaMajor && minor != nvidiaModeset:
		d.gpus = append(d.gpus, minor)
	case s.uvm != 0 && major == s.uvm:
		d.uvm = true
	}
}

func (d *descriptors) addBuffer(dir *os.File, folder, name string) {
	text, err := readLimited(filepath.Join(folder, "fdinfo", name), maxText)
	if err != nil || len(d.buffers) == maxBuffers {
		return
	}
	b, ok := parseBuffer(string(text))
	if b.Inode == 0 { // before Linux 5.14, fdinfo has no inode
		var st unix.Stat_t
		if unix.Fstatat(int(dir.Fd()), name, &st, 0) == nil {
			b.Inode = st.Ino
		}
	}
	if ok && !slices.ContainsFunc(d.buffers, func(x Buffer) bool { return x.Inode == b.Inode }) {
		d.buffers = append(d.buffers, b)
	}
}

// parseBuffer parses the file of a dma-buf in /proc/PID/fdinfo: lines as "size: 4096", "ino: 42"
// and "exp_name: nvidia". It returns false for a file of any other kind.
func parseBuffer(text string) (b Buffer, ok bool) {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch key {
		case "size":
			b.Bytes, _ = strconv.ParseUint(value, 10, 64)
		case "ino":
			b.Inode, _ = strconv.ParseUint(value, 10, 64)
		case "exp_name":
			b.Exporter, ok = value, true
		}
	}
	return b, ok
}

// mapped returns the dma-bufs that a process maps.
func (s *scanner) mapped(pid uint32, folder string) (list []Buffer) {
	text, err := procfs.Call(pid, patience, func() ([]byte, error) {
		f, err := os.Open(filepath.Join(folder, "maps"))
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return io.ReadAll(io.LimitReader(f, maxMaps))
	})
	if err != nil || !bytes.Contains(text, []byte(bufferName)) {
		return nil
	}
	at := map[uint64]int{}
	for m := range procmaps.All(text) {
		if !strings.HasPrefix(m.Path, bufferName) || m.Major != 0 { // a file of that name is on a device
			continue
		}
		i, ok := at[m.Inode]
		if !ok {
			if len(list) == maxBuffers {
				break
			}
			i = len(list)
			at[m.Inode] = i
			list = append(list, Buffer{Inode: m.Inode, Mapped: true})
		}
		list[i].Bytes += m.End - m.Start
	}
	return list
}
