// SPDX-License-Identifier: Apache-2.0

package peek

import (
	"bytes"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pages maps n pages of this process, each filled with its number from 1 on.
func pages(t *testing.T, n int) ([]byte, uint64) {
	t.Helper()
	b, err := unix.Mmap(-1, 0, n*PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(b) })
	for i := range b {
		b[i] = byte(i/PageSize + 1)
	}
	return b, uint64(uintptr(unsafe.Pointer(&b[0])))
}

func TestReadSpansLeavesOutWhatIsNotResident(t *testing.T) {
	if os.Getpagesize() != PageSize {
		t.Skip("pages of another size")
	}
	b, at := pages(t, 5)
	if err := unix.Madvise(b[PageSize:2*PageSize], unix.MADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mprotect(b[3*PageSize:4*PageSize], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	p, err := Open(os.Getpid())
	if err != nil {
		t.Skip(err)
	}
	defer p.Close()
	s := p.Scatter()
	span := func(from, to int) Span { return Span{at + uint64(from), at + uint64(to)} }
	for name, c := range map[string]struct {
		spans []Span
		want  []byte
	}{
		"one":                {[]Span{span(0, 3)}, []byte{1, 1, 1}},
		"one after another":  {[]Span{span(2*PageSize, 2*PageSize+2), span(0, 1)}, []byte{3, 3, 1}},
		"across a gap":       {[]Span{span(PageSize-2, 2*PageSize+2)}, append(append([]byte{1, 1}, make([]byte, PageSize)...), 3, 3)},
		"what is forbidden":  {[]Span{span(3*PageSize, 3*PageSize+2), span(4*PageSize, 4*PageSize+1)}, []byte{0, 0, 5}},
		"what is not mapped": {[]Span{{8, 10}, span(0, 1), {1<<64 - 9, 1<<64 - 1}, span(0, 1)}, []byte{0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1}},
		"nothing":            {nil, nil},
	} {
		got := bytes.Repeat([]byte{0xee}, len(c.want)+1)
		s.ReadSpans(got, c.spans)
		if !bytes.Equal(got[:len(c.want)], c.want) || got[len(c.want)] != 0xee {
			t.Errorf("%s: got % x", name, got[:min(len(got), 20)])
		}
	}
	if n, calls := s.ReadSpans(make([]byte, 1), []Span{span(0, 2)}); n != 0 || calls != 0 {
		t.Errorf("into too small a buffer: %d bytes, %d calls", n, calls)
	}
	b[PageSize] = 7 // resident from now on
	one := make([]byte, 1)
	if s.ReadSpans(one, []Span{span(PageSize, PageSize+1)}); one[0] != 7 {
		t.Errorf("a page that was brought in: %d", one[0])
	}
	var many []Span
	for range 3*maxBatch + 5 {
		many = append(many, span(2*PageSize, 2*PageSize+1))
	}
	got := make([]byte, len(many))
	if n, calls := s.ReadSpans(got, many); n != len(many) || calls > 5 || !bytes.Equal(got, bytes.Repeat([]byte{3}, len(many))) {
		t.Errorf("%d bytes in %d calls, want %d", n, calls, len(many))
	}
}
