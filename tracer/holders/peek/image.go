// SPDX-License-Identifier: Apache-2.0

package peek

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"unicode/utf8"

	"github.com/vramprof/vramprof/internal/untrusted"
)

const (
	imageMagic   = "vramprof memory image 1\n"
	maxImage     = 1 << 30 // bytes of pages
	maxImageText = 4096
)

// Image is recorded memory. It holds what a process had in its memory, secrets included: it is for
// tests.
type Image struct {
	Mapped []Region
	Named  map[string]uint64
	Pages  map[uint64]*Page // by number
}

// Regions returns what the process had mapped.
func (m *Image) Regions() []Region { return m.Mapped }

// Symbols returns those that were recorded.
func (m *Image) Symbols(...string) (map[string]uint64, error) {
	if len(m.Named) == 0 {
		return nil, ErrNoPython
	}
	return m.Named, nil
}

// ReadAt reads recorded pages.
func (m *Image) ReadAt(b []byte, address uint64) (int, error) {
	for done := 0; done < len(b); {
		at := address + uint64(done)
		p := m.Pages[at>>PageShift]
		if p == nil {
			return done, fmt.Errorf("read %#x of the image: %w", at, errAbsent)
		}
		done += copy(b[done:], p[at%PageSize:])
	}
	return len(b), nil
}

// Record writes the pages that a copy holds, with the names of mapped files.
func (c *Copy) Record(to io.Writer) error {
	symbols, err := c.Symbols(RuntimeSymbol, VersionSymbol, TypeSymbol)
	if err != nil {
		return fmt.Errorf("record an image: %w", err)
	}
	z := gzip.NewWriter(to)
	w := &imageWriter{Writer: bufio.NewWriter(z)}
	w.text(imageMagic)
	w.number(uint64(len(symbols)))
	for _, name := range []string{RuntimeSymbol, VersionSymbol, TypeSymbol} {
		if at, is := symbols[name]; is {
			w.text(name)
			w.number(at)
		}
	}
	w.number(uint64(len(c.regions)))
	for _, r := range c.regions {
		w.region(r)
	}
	c.EachPage(func(number uint64, p *Page) {
		w.number(number)
		w.Write(p[:])
	})
	w.number(0)
	if err := errors.Join(w.Flush(), z.Close()); err != nil {
		return fmt.Errorf("record an image: %w", err)
	}
	return nil
}

// EachPage visits the pages of a copy in the order of their addresses.
func (c *Copy) EachPage(visit func(number uint64, p *Page)) {
	var keys []uint64
	for key := range c.chunks {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		for k, p := range c.chunks[key] {
			if p != nil && p != unreadable {
				visit(key<<(chunkShift-PageShift)+uint64(k), p)
			}
		}
	}
}

// imageWriter keeps the first error, as bufio.Writer does.
type imageWriter struct{ *bufio.Writer }

func (w *imageWriter) number(n uint64) { w.Write(binary.AppendUvarint(nil, n)) }

func (w *imageWriter) text(s string) {
	w.number(uint64(len(s)))
	w.WriteString(s)
}

func (w *imageWriter) region(r Region) {
	flags := uint64(0)
	for i, set := range []bool{r.Readable, r.Writable, r.Private} {
		if set {
			flags |= 1 << i
		}
	}
	w.number(r.Start)
	w.number(r.End)
	w.number(r.Offset)
	w.number(flags)
	if r.Path = cutPath(untrusted.Clean(r.Path)); r.File() {
		r.Path = "/" + path.Base(r.Path)
	}
	w.text(r.Path)
}

// cutPath cuts a path off at 60 characters.
func cutPath(path string) string {
	if utf8.RuneCountInString(path) <= 60 {
		return path
	}
	return string([]rune(path)[:59]) + "…"
}

// ReadImage reads what Record has written.
func ReadImage(from io.Reader) (*Image, error) {
	z, err := gzip.NewReader(from)
	if err != nil {
		return nil, fmt.Errorf("read a memory image: %w", err)
	}
	return ParseImage(z)
}

// ParseImage reads an image that is not compressed.
func ParseImage(from io.Reader) (*Image, error) {
	r := &imageReader{Reader: bufio.NewReader(from)}
	if magic := r.text(); magic != imageMagic {
		return nil, fmt.Errorf("read a memory image: it does not begin with %q", imageMagic)
	}
	m := &Image{Named: map[string]uint64{}, Pages: map[uint64]*Page{}}
	for n := r.number(); n > 0 && r.err == nil; n-- {
		name := r.text()
		m.Named[name] = r.number()
	}
	for n := r.number(); n > 0 && r.err == nil && len(m.Mapped) < maxRegions; n-- {
		m.Mapped = append(m.Mapped, r.region())
	}
	for r.err == nil && len(m.Pages) < maxImage/PageSize {
		number := r.number()
		if number == 0 {
			break
		}
		p := new(Page)
		if _, err := io.ReadFull(r, p[:]); err != nil {
			r.err = err
		}
		m.Pages[number] = p
	}
	if r.err != nil {
		return nil, fmt.Errorf("read a memory image: %w", r.err)
	}
	return m, m.check()
}

// check wants regions as /proc has them: sorted, apart, in user space.
func (m *Image) check() error {
	end := uint64(0)
	for _, r := range m.Mapped {
		if r.Start < end || r.Start >= r.End || r.End > AddressEnd {
			return fmt.Errorf("read a memory image: region %#x-%#x is out of order", r.Start, r.End)
		}
		end = r.End
	}
	return nil
}

// imageReader keeps the first error.
type imageReader struct {
	*bufio.Reader
	err error
}

func (r *imageReader) number() uint64 {
	n, err := binary.ReadUvarint(r.Reader)
	if err != nil && r.err == nil {
		r.err = err
	}
	return n
}

func (r *imageReader) text() string {
	n := r.number()
	if n > maxImageText && r.err == nil {
		r.err = errors.New("a name is too long")
	}
	if r.err != nil {
		return ""
	}
	b := make([]byte, n)
	_, r.err = io.ReadFull(r.Reader, b)
	return string(b)
}

func (r *imageReader) region() Region {
	m := Region{Start: r.number(), End: r.number(), Offset: r.number()}
	flags := r.number()
	m.Readable, m.Writable, m.Private = flags&1 != 0, flags&2 != 0, flags&4 != 0
	m.Path = r.text()
	return m
}
