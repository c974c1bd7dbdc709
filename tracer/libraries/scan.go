// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"unsafe"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// scan is what a look at processes has found: the mappings of CUDA processes, ordered by pid, and
// the layouts of all.
type scan struct {
	list    []Mapped
	layouts map[uint32]uint64
}

// A process has at most bpf.MaxMapped mappings in a scan. Once all have maxMapped, some 16 MiB,
// further ones have fewMapped each: enough for one of each library and the program.
const (
	maxMapped = 1 << 16
	fewMapped = 8
)

// roomFor returns how many mappings the next process may have if others have so many.
func roomFor(others int) int {
	if others >= maxMapped {
		return fewMapped
	}
	return bpf.MaxMapped
}

// collector takes the mappings of one process after the other.
type collector struct {
	scan
	pid    uint32 // the current process
	begin  int    // of its mappings in list
	isCUDA bool
	latest FileKey
	parts  int // mappings of latest, with no mapping of another file between them
}

// add takes a mapping. The mappings of a process come together.
func (c *collector) add(l Mapped) {
	if l.PID != c.pid {
		c.end()
		c.pid = l.PID
	}
	if l.File != c.latest {
		c.latest, c.parts = l.File, 0
	}
	if c.parts++; c.parts <= bpf.MaxParts && len(c.list)-c.begin < roomFor(c.begin) {
		c.list = append(c.list, l)
		c.isCUDA = c.isCUDA || !l.Program && l.Layer.IsCUDA()
	}
}

// end removes the mappings of the current process if it maps no CUDA library. A program that
// contains cudart loads the driver's library in cuInit at the latest, and PyTorch alone may run on
// the CPU.
func (c *collector) end() {
	if !c.isCUDA {
		clear(c.list[c.begin:])
		c.list = c.list[:c.begin]
	} else if thread := procfs.Thread(c.pid); thread != c.pid {
		c.list = c.list[:c.begin+len(byThread(c.list[c.begin:], thread))]
	}
	c.begin, c.isCUDA, c.latest = len(c.list), false, FileKey{}
}

// byThread changes the paths of a process's mappings to those by a thread. The kernel has listed
// them once for each.
func byThread(list []Mapped, thread uint32) []Mapped {
	known := map[uint64]bool{} // by address
	kept := list[:0]
	for _, l := range list {
		start, end, ok := l.Range()
		if !ok || known[start] {
			continue
		}
		known[start] = true
		l.Path = pathOf(thread, start, end)
		l.File = keyOf(l.File.Device, l.File.Inode, l.Path)
		kept = append(kept, l)
	}
	clear(list[len(kept):])
	return kept
}

// readScan reads the output of mapped_files, in pieces: processes may have millions of mappings.
func readScan(r io.Reader) (scan, error) {
	c := collector{scan: scan{layouts: map[uint32]uint64{}}}
	pieces := bufio.NewReaderSize(r, 32<<10) // the kernel's buffer
	raw := make([]byte, unsafe.Sizeof(bpf.MappedFile{}))
	for {
		if _, err := io.ReadFull(pieces, raw); errors.Is(err, io.EOF) {
			c.end()
			return c.scan, nil
		} else if err != nil {
			return scan{}, fmt.Errorf("scan mappings: %w", err)
		}
		record, _, err := bpf.DecodeMappedFile(raw)
		if err != nil {
			return scan{}, fmt.Errorf("scan mappings: %w", err)
		}
		if record.Layout != 0 {
			c.layouts[record.Pid] = record.Inode
		} else if l, ok := mappedOf(record); ok {
			c.add(l)
		}
	}
}

func mappedOf(record *bpf.MappedFile) (l Mapped, ok bool) {
	name, _, _ := strings.Cut(string(record.Name[:]), "\x00")
	layer, ok := LayerOf(name)
	if !ok && record.Program == 0 {
		return l, false
	}
	open := pathOf(record.Pid, record.Start, record.End)
	return Mapped{
		PID:     record.Pid,
		File:    keyOf(record.Device, record.Inode, open),
		Layer:   layer,
		Program: !ok,
		Name:    untrusted.Clean(name),
		Address: record.Start,
		Path:    open,
	}, true
}
