// SPDX-License-Identifier: Apache-2.0

package peek

import "encoding/binary"

// residency remembers which pages are resident, in runs of 512 pagemap entries.
type residency struct {
	*Process
	runs  map[uint64]*[8 * 512]byte
	calls int
}

func (m *residency) page(address uint64) bool {
	entry := address >> m.shift
	run := m.runs[entry/512]
	if run == nil {
		run = new([8 * 512]byte)
		m.calls++
		m.pagemap.ReadAt(run[:], int64(entry/512*8*512)) // an entry that cannot be read stays 0: not resident
		m.runs[entry/512] = run
	}
	return binary.LittleEndian.Uint64(run[entry%512*8:])>>63 == 1
}

// span reports whether a range lies in one region that may be read, and is resident.
func (m *residency) span(s Span) bool {
	r, ok := regionAt(m.regions, s.Start)
	return ok && !r.Forbidden() && s.End <= r.End && s.End > s.Start && m.page(s.Start) && m.page(s.End-1)
}

// ReadEach copies size bytes, at most a page, from each address to b, one after the other: 512 addresses
// in a system call. What is not resident or may not be read is zero in b. It returns the numbers of
// bytes and of system calls.
func (p *Process) ReadEach(b []byte, size int, addresses []uint64) (bytes, calls int) {
	if size <= 0 || size > PageSize || len(b) < size*len(addresses) {
		return 0, 0
	}
	clear(b[:size*len(addresses)])
	known := residency{Process: p, runs: map[uint64]*[8 * 512]byte{}}
	batch := make([]Span, 0, maxBatch)
	first := 0 // of the batch, among the addresses
	flush := func() {
		for len(batch) > 0 {
			n, _ := readv(p.pid, b[first*size:(first+len(batch))*size], batch)
			known.calls++
			n = max(n, 0)
			bytes += n
			skip := n/size + 1 // the one that failed stays zero, or in part
			if n == size*len(batch) || skip > len(batch) {
				skip = len(batch)
			}
			first, batch = first+skip, batch[skip:]
		}
		batch = make([]Span, 0, maxBatch)
	}
	for i, a := range addresses {
		s := Span{a, a + uint64(size)}
		if !known.span(s) {
			flush()
			first = i + 1
			continue
		}
		if len(batch) == 0 {
			first = i
		}
		if batch = append(batch, s); len(batch) == maxBatch {
			flush()
		}
	}
	flush()
	if p.alive() != nil { // the pid may be another process's by now
		clear(b[:size*len(addresses)])
		return 0, known.calls
	}
	return bytes, known.calls
}
