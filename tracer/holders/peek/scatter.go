// SPDX-License-Identifier: Apache-2.0

package peek

import "encoding/binary"

const runPages = 512 // pagemap entries in one read

// run has a bit for each of 512 pages that is resident.
type run struct {
	resident [runPages / 64]uint64
	call     int // in which it was read
}

// residency remembers which pages are resident.
type residency struct {
	*Process
	runs    map[uint64]*run
	number  uint64 // of the run that was used last
	last    *run
	region  Region // that was used last
	entries [8 * runPages]byte
	call    int // of ReadSpans
	calls   int // of the system
}

// page reports whether a page is resident. One that was not in an earlier call may be by now.
func (m *residency) page(address uint64) bool {
	entry := address >> m.shift
	number, i := entry/runPages, entry%runPages
	if m.last == nil || number != m.number {
		m.number, m.last = number, m.runs[number]
		if m.last == nil {
			m.last = &run{call: m.call - 1}
			m.runs[number] = m.last
		}
	}
	if m.last.has(i) {
		return true
	}
	if m.last.call != m.call {
		m.load(number)
	}
	return m.last.has(i)
}

func (r *run) has(i uint64) bool { return r.resident[i/64]>>(i%64)&1 == 1 }

// load reads the last run.
func (m *residency) load(number uint64) {
	m.calls++
	n, _ := m.pagemap.ReadAt(m.entries[:], int64(number*8*runPages)) // beyond the last entry nothing is resident
	*m.last = run{call: m.call}
	for i := range max(n, 0) / 8 {
		m.last.resident[i/64] |= binary.LittleEndian.Uint64(m.entries[8*i:]) >> 63 << (i % 64)
	}
}

// readable reports whether an address lies in a region that may be read, on a resident page.
func (m *residency) readable(address uint64) bool {
	if address < m.region.Start || address >= m.region.End {
		r, ok := regionAt(m.regions, address)
		if !ok || r.Forbidden() {
			return false
		}
		m.region = r
	}
	return m.page(address)
}

// Scatter reads many ranges of a process in few system calls. It remembers which pages are
// resident: a page that is swapped out meanwhile may be brought in, so use it for a short time.
type Scatter struct {
	residency
	to    []byte // where the next ranges go, one after the other
	used  int    // bytes of it
	batch []Span
	bytes int // copied in this call
}

// Scatter returns a reader of many ranges. It needs no closing.
func (p *Process) Scatter() *Scatter {
	return &Scatter{residency: residency{Process: p, runs: map[uint64]*run{}}}
}

// ReadSpans copies ranges of memory to b, one after the other, 512 of them in a system call. Pages
// that are not resident or may not be read are zero in b. It returns the numbers of bytes and of
// system calls; nothing is read if b is too small. Ranges in the order of their addresses take the
// least time.
func (s *Scatter) ReadSpans(b []byte, spans []Span) (bytes, calls int) {
	var size uint64
	for _, r := range spans {
		if r.End < r.Start || r.Bytes() > uint64(len(b))-size {
			return 0, 0
		}
		size += r.Bytes()
	}
	s.to, s.used, s.bytes, s.calls = b[:size], 0, 0, 0
	s.region = Region{} // the memory map may have been read again
	s.call++
	for _, r := range spans {
		s.add(r)
	}
	s.flush()
	s.to = nil
	if s.alive() != nil { // the pid may be another process's by now
		clear(b[:size])
		return 0, s.calls
	}
	return s.bytes, s.calls
}

// add adds the readable parts of a range, and makes the others zero.
func (s *Scatter) add(r Span) {
	if r.End > AddressEnd {
		s.skip(int(r.Bytes()))
		return
	}
	for at := r.Start; at < r.End; {
		end := min(at&^(PageSize-1)+PageSize, r.End)
		n := int(end - at)
		switch k := len(s.batch) - 1; {
		case !s.readable(at):
			s.skip(n)
		case at > r.Start && k >= 0 && s.batch[k].End == at:
			s.batch[k].End, s.used = end, s.used+n
		default:
			if len(s.batch) == maxBatch {
				s.flush()
			}
			s.batch, s.used = append(s.batch, Span{at, end}), s.used+n
		}
		at = end
	}
}

// skip makes the next n bytes zero.
func (s *Scatter) skip(n int) {
	s.flush()
	clear(s.to[:n])
	s.to = s.to[n:]
}

// flush copies the batch. The rest of a range that fails is zero.
func (s *Scatter) flush() {
	for batch := s.batch; len(batch) > 0; {
		n, _ := readv(s.pid, s.to[:s.used], batch)
		s.calls++
		n = max(n, 0)
		s.bytes += n
		for len(batch) > 0 && n >= int(batch[0].Bytes()) {
			n -= s.pass(batch[0])
			batch = batch[1:]
		}
		if len(batch) > 0 { // the one that failed
			clear(s.to[n:batch[0].Bytes()])
			s.pass(batch[0])
			batch = batch[1:]
		}
	}
	s.batch = s.batch[:0]
}

func (s *Scatter) pass(r Span) int {
	n := int(r.Bytes())
	s.to, s.used = s.to[n:], s.used-n
	return n
}
