// SPDX-License-Identifier: Apache-2.0

package peek

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/procmaps"
	"github.com/vramprof/vramprof/internal/procmem"
)

const (
	maxRegions = 1 << 18  // of one process
	maxPages   = 32 << 20 // that are looked up in pagemap: 128 GiB of address space
	maxBatch   = 512      // ranges in one system call
)

// Process reads a running process. It neither stops nor changes it: it copies only pages that are
// resident, never touches memory of devices, and notices when the pid belongs to another process.
type Process struct {
	pid       int
	thread    int // see procmem.Thread
	pidfd     int
	pagemap   *os.File
	shift     uint // pagemap has an entry for each 1<<shift bytes: 4, 16 or 64 KiB
	regions   []Region
	files     map[fileKey]mappedFile
	symbols   map[string]uint64
	variables map[string]uint64 // where those of a library end
	swapped   uint64            // pages that were left out since reading them would bring them back
	skipped   uint64            // bytes of address space beyond maxPages
}

// Open opens a process by its pid in the caller's pid namespace. Close it after use. The caller
// needs the right to trace the process: the same user, or CAP_SYS_PTRACE.
func Open(pid int) (*Process, error) {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", pid, err)
	}
	p := &Process{pid: pid, thread: procmem.Thread(pid), pidfd: pidfd, shift: uint(bits.TrailingZeros(uint(os.Getpagesize()))), files: map[fileKey]mappedFile{}, variables: map[string]uint64{}}
	if p.regions, err = readMaps(p.thread); err == nil {
		p.pagemap, err = os.Open(p.proc("pagemap"))
	}
	if err == nil {
		err = p.alive()
	}
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("read its memory map: %w", err)
	}
	return p, nil
}

// Refresh reads the memory map again: heaps grow.
func (p *Process) Refresh() error {
	regions, err := readMaps(p.thread)
	if err == nil {
		err = p.alive()
	}
	if err != nil {
		return fmt.Errorf("read its memory map: %w", err)
	}
	p.regions, p.swapped, p.skipped = regions, 0, 0
	return nil
}

// Close releases what Open took.
func (p *Process) Close() {
	unix.Close(p.pidfd)
	if p.pagemap != nil {
		p.pagemap.Close()
	}
	for _, f := range p.files {
		if f.File != nil {
			f.Close()
		}
	}
}

// Regions returns what was mapped when the process was opened, or at the last Refresh or copy.
func (p *Process) Regions() []Region { return p.regions }

func (p *Process) proc(name string) string { return fmt.Sprintf("/proc/%d/%s", p.thread, name) }

// alive returns an error if the process has ended. Afterwards the pid may be another's.
func (p *Process) alive() error {
	if err := unix.PidfdSendSignal(p.pidfd, 0, nil, 0); errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d has ended", p.pid)
	}
	return nil
}

// ReadAt reads resident pages. Pages of a file that are not resident are read from the file.
func (p *Process) ReadAt(b []byte, address uint64) (int, error) {
	done := 0
	for done < len(b) {
		at := address + uint64(done)
		n := min(len(b)-done, int(PageSize-at%PageSize))
		if err := p.readPage(b[done:done+n], at); err != nil {
			return done, err
		}
		done += n
	}
	return done, p.alive()
}

// readPage reads a part of one page.
func (p *Process) readPage(b []byte, address uint64) error {
	r, ok := regionAt(p.regions, address)
	if !ok || r.Forbidden() {
		return fmt.Errorf("read %#x of process %d: %w", address, p.pid, errAbsent)
	}
	if p.resident(address) {
		n, err := readv(p.pid, b, []Span{{address, address + uint64(len(b))}})
		if err == nil && n == len(b) {
			return nil
		}
	}
	if r.File() && !r.Writable {
		return p.readFile(b, r, address)
	}
	return fmt.Errorf("read %#x of process %d: %w", address, p.pid, errAbsent)
}

// SwappedPages returns how many pages were left out since they are swapped out. Guard pages look
// the same in pagemap: the process's own count bounds them.
func (p *Process) SwappedPages() uint64 {
	f, err := os.Open(p.proc("status"))
	if err != nil {
		return p.swapped
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var kib uint64
		if n, _ := fmt.Sscanf(lines.Text(), "VmSwap: %d kB", &kib); n == 1 {
			return min(p.swapped, kib<<10>>p.shift)
		}
	}
	return p.swapped
}

// SkippedBytes returns how much of the address space was not looked at.
func (p *Process) SkippedBytes() uint64 { return p.skipped }

// resident reports whether a page can be read without bringing it in.
func (p *Process) resident(address uint64) bool {
	var entry [8]byte
	if _, err := p.pagemap.ReadAt(entry[:], int64(address>>p.shift*8)); err != nil {
		return false
	}
	return binary.LittleEndian.Uint64(entry[:])>>63 == 1
}

// Span is a range of addresses.
type Span struct{ Start, End uint64 }

func (s Span) Bytes() uint64 { return s.End - s.Start }

// readv copies ranges, one after the other, into b. It ends early where one cannot be read.
func readv(pid int, b []byte, spans []Span) (int, error) {
	remote := make([]unix.RemoteIovec, len(spans))
	for i, s := range spans {
		remote[i] = unix.RemoteIovec{Base: uintptr(s.Start), Len: int(s.Bytes())}
	}
	return procmem.Gather(pid, b, remote)
}

// residentSpans returns the resident pages of the process's own memory.
func (p *Process) residentSpans() (spans []Span, bytes uint64) {
	var left uint64 = maxPages
	buf := make([]byte, 1<<17)
	for _, r := range bySize(p.regions) {
		if !r.Own() {
			continue
		}
		pages := (r.End - r.Start) >> p.shift
		if pages > left {
			p.skipped += r.End - r.Start
			continue
		}
		left -= pages
		spans = p.appendResident(spans, r, buf)
	}
	slices.SortFunc(spans, func(a, b Span) int { return cmp.Compare(a.Start, b.Start) })
	for _, s := range spans {
		bytes += s.Bytes()
	}
	return spans, bytes
}

// bySize returns regions, the smallest first: reservations of terabytes come last.
func bySize(regions []Region) []Region {
	sorted := slices.Clone(regions)
	slices.SortStableFunc(sorted, func(a, b Region) int { return cmp.Compare(a.End-a.Start, b.End-b.Start) })
	return sorted
}

func (p *Process) appendResident(spans []Span, r Region, buf []byte) []Span {
	for at := r.Start; at < r.End; {
		n := min(uint64(len(buf))/8, (r.End-at)>>p.shift)
		if n == 0 {
			break
		}
		if _, err := p.pagemap.ReadAt(buf[:8*n], int64(at>>p.shift*8)); err != nil {
			p.skipped += r.End - at
			break
		}
		for i := range n {
			entry := binary.LittleEndian.Uint64(buf[8*i:])
			page, end := at+i<<p.shift, at+(i+1)<<p.shift
			switch {
			case entry>>63 == 0:
				p.swapped += entry >> 62
			case len(spans) > 0 && spans[len(spans)-1].End == page:
				spans[len(spans)-1].End = end
			default:
				spans = append(spans, Span{page, end})
			}
		}
		at += n << p.shift
	}
	return spans
}

// readMaps reads /proc/PID/maps.
func readMaps(pid int) ([]Region, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var regions []Region
	err = procmaps.Each(f, func(m procmaps.Mapping) bool {
		if r, ok := regionOf(m); ok && (len(regions) == 0 || regions[len(regions)-1].End <= r.Start) {
			regions = append(regions, r)
		}
		return len(regions) < maxRegions
	})
	return regions, err
}

// regionOf returns the region of a mapping, and false for those of the kernel.
func regionOf(m procmaps.Mapping) (Region, bool) {
	if m.End > AddressEnd {
		return Region{}, false
	}
	return Region{
		Start: m.Start, End: m.End, Offset: m.Offset, Path: m.Path, Readable: m.Readable, Writable: m.Writable, Private: m.Private,
		device: unix.Mkdev(m.Major, m.Minor), inode: m.Inode,
	}, true
}
