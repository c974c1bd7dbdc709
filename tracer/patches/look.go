// SPDX-License-Identifier: Apache-2.0

package patches

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/procmem"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// look compares the memory of one process with a file.
type look struct {
	code  *Code
	path  string
	pid   uint32
	parts []libraries.Mapped
	apart bool // the process has probes of its own
}

// change is what a process changed.
type change struct {
	function string // the first that differs; "" if none does
	trap     bool   // see Patch.Trap
}

// find returns what the process changed. It looks twice: the process may unmap the file meanwhile,
// and probes of other tools may come and go.
func (l *look) find() (found change, err error) {
	for range 2 {
		found, err = l.findOnce()
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			return change{}, nil // the process has ended
		}
		if found.function == "" && err == nil {
			return change{}, nil
		}
		l.code.probed.Store(nil)
	}
	return found, err
}

func (l *look) findOnce() (found change, err error) {
	parts := slices.DeleteFunc(slices.Clone(l.parts), func(part libraries.Mapped) bool { _, _, ok := part.Range(); return !ok })
	if len(parts) == 0 {
		return change{}, nil
	}
	pages, err := openPages(l.pid)
	if err != nil {
		return change{}, err
	}
	defer pages.Close()
	for _, part := range parts {
		start, end, _ := part.Range()
		own, err := pages.own(start, end)
		if err != nil {
			return change{}, err
		}
		if own == nil {
			continue // all pages are the file's
		}
		now, err := part.Parts()
		if err != nil {
			return change{}, err
		}
		for _, now := range now {
			if err := l.findIn(now, own, &found); err != nil {
				return change{}, err
			}
		}
	}
	return found, nil
}

// findIn looks at one part, of which own reports the pages that are the process's own, and adds
// what differs to found.
func (l *look) findIn(part libraries.Part, own func(address uint64) bool, found *change) error {
	start, offset, size := part.Start, part.Offset, part.End-part.Start
	var which []int // pieces in such pages
	var first []uint64
	var ranges []unix.RemoteIovec
	var total uint64
	for i := range l.code.pieces {
		p := &l.code.pieces[i]
		from, to := max(p.offset, offset), min(p.end(), offset+size)
		if from >= to || !own(start+from-offset) && !own(start+to-1-offset) {
			continue
		}
		which, first = append(which, i), append(first, from-p.offset)
		ranges = append(ranges, unix.RemoteIovec{Base: uintptr(start + from - offset), Len: int(to - from)})
		total += to - from
	}
	all := make([]byte, total)
	if err := read(l.pid, all, ranges); err != nil {
		return err
	}
	for j, i := range which {
		p := &l.code.pieces[i]
		memory := all[:ranges[j].Len]
		all = all[len(memory):]
		want := p.bytes[first[j]:]
		if bytes.Equal(memory, want[:len(memory)]) {
			continue
		}
		probed, err := l.probed(i)
		if err != nil {
			return err
		}
		if l.isProbed(memory, want, probed[first[j]:]) {
			continue
		}
		if found.function == "" {
			found.function = p.function
		}
		at := p.probe - min(first[j], p.probe)
		found.trap = found.trap || first[j] <= p.probe && bytes.HasPrefix(memory[min(at, uint64(len(memory))):], breakpoint)
	}
	return nil
}

// probed returns a piece with the breakpoints that are known.
func (l *look) probed(i int) ([]byte, error) {
	list, err := l.code.withProbes(l.path)
	if err != nil {
		return nil, err
	}
	if !l.apart {
		return list[i], nil
	}
	b, p := bytes.Clone(list[i]), &l.code.pieces[i]
	copy(b[min(p.probe, uint64(len(b))):], breakpoint)
	return b, nil
}

// isProbed reports whether memory differs from the file only by breakpoints of probes: those that
// every process has, and those of tools that probe only this process.
func (l *look) isProbed(memory, file, probed []byte) bool {
	for i := 0; i < len(memory); i++ {
		if memory[i] == file[i] || memory[i] == probed[i] {
			continue
		}
		i -= i % len(breakpoint)
		if !bytes.HasPrefix(memory[i:], breakpoint) || takesTraps(l.pid) {
			return false
		}
		i += len(breakpoint) - 1
	}
	return true
}

// breakpoint is the instruction that the kernel writes for a probe.
var breakpoint = map[string][]byte{"amd64": {0xcc}, "arm64": {0xa0, 0x00, 0x20, 0xd4}}[runtime.GOARCH]

// takesTraps reports whether a breakpoint in a process can be that of a debugger or of the process
// itself. Otherwise it would kill the process, so it is that of a probe.
func takesTraps(pid uint32) bool {
	const trap = 1 << (unix.SIGTRAP - 1)
	for line := range strings.Lines(string(procfs.Read(procfs.Thread(pid), "status", 8192))) {
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); name {
		case "TracerPid":
			if strings.TrimSpace(value) != "0" {
				return true
			}
		case "SigCgt":
			caught, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			return err != nil || caught&trap != 0
		}
	}
	return true
}

// withProbes returns the pieces as a new mapping of the file has them: the kernel writes
// breakpoints into it, except those of tools that probe only some processes.
func (c *Code) withProbes(path string) ([][]byte, error) {
	if known := c.probed.Load(); known != nil {
		return *known, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	page := uint64(os.Getpagesize())
	first := c.pieces[0].offset &^ (page - 1)
	last := first
	for i := range c.pieces {
		last = max(last, c.pieces[i].end())
	}
	mapping, err := unix.MmapPtr(int(f.Fd()), int64(first), nil, uintptr(last-first), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return nil, &os.PathError{Op: "mmap", Path: path, Err: err}
	}
	defer unix.MunmapPtr(mapping, uintptr(last-first))
	list := make([][]byte, len(c.pieces))
	ranges := make([]unix.RemoteIovec, len(c.pieces))
	size := 0
	for i := range c.pieces {
		p := &c.pieces[i]
		ranges[i] = unix.RemoteIovec{Base: uintptr(mapping) + uintptr(p.offset-first), Len: len(p.bytes)}
		size += len(p.bytes)
	}
	all := make([]byte, size)
	// Unlike a load, the call returns an error if the file is truncated.
	if err := read(uint32(os.Getpid()), all, ranges); err != nil {
		return nil, err
	}
	for i, r := range ranges {
		list[i], all = all[:r.Len], all[r.Len:]
	}
	c.probed.Store(&list)
	return list, nil
}

// read fills b with ranges of a process's memory.
func read(pid uint32, b []byte, ranges []unix.RemoteIovec) error {
	return os.NewSyscallError("process_vm_readv", procmem.GatherAll(int(pid), b, ranges))
}
