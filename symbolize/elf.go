// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/symbolize/internal/dwarf"
)

// maxHeaders is the most bytes that debug/elf may read for headers and section names; a typical
// library needs a few kilobytes.
const maxHeaders = 4 << 20

var errHeaders = errors.New("headers too large")

// binaryFile is an open ELF file.
type binaryFile struct {
	file *os.File
	size int64
	elf  *elf.File
}

// budgetReader returns an error once more than left bytes have been read.
type budgetReader struct {
	r    io.ReaderAt
	left int64
}

func (b *budgetReader) ReadAt(p []byte, off int64) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, errHeaders
	}
	return b.r.ReadAt(p, off)
}

// fence turns a parser's panic into an error.
func fence(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("parser panicked: %v", r)
	}
}

// parseELF reads the headers of f. It does not close f.
func parseELF(f *os.File, maxFileSize int64) (b *binaryFile, err error) {
	defer fence(&err)
	st, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular():
		return nil, untrusted.ErrNotRegular
	case st.Size() > maxFileSize:
		return nil, fmt.Errorf("%d bytes are more than the limit of %d: %w", st.Size(), maxFileSize, fs.ErrInvalid)
	}
	headers, err := parseHeaders(f)
	if err != nil {
		return nil, err
	}
	return &binaryFile{file: f, size: st.Size(), elf: headers}, nil
}

func parseHeaders(r io.ReaderAt) (headers *elf.File, err error) {
	defer fence(&err)
	budget := &budgetReader{r, maxHeaders}
	headers, err = elf.NewFile(budget)
	if err != nil {
		return nil, err
	}
	if headers.Class != elf.ELFCLASS64 || headers.Data != elf.ELFDATA2LSB {
		return nil, fmt.Errorf("%v %v: only 64-bit little-endian files are read", headers.Class, headers.Data)
	}
	budget.left = 1<<63 - 1 // later reads have their own limits
	return headers, nil
}

// text returns the address ranges that contain code.
func (b *binaryFile) text() []span {
	const most = 64 // sections; a typical library has five
	var text []span
	for _, s := range b.elf.Sections {
		if s.Flags&(elf.SHF_ALLOC|elf.SHF_EXECINSTR) == elf.SHF_ALLOC|elf.SHF_EXECINSTR &&
			s.Addr+s.Size > s.Addr && len(text) < most {
			text = append(text, span{s.Addr, s.Addr + s.Size})
		}
	}
	return text
}

// raw returns a section's bytes as stored in the file. It returns an empty Section if they are not
// inside the file.
func (b *binaryFile) raw(s *elf.Section) dwarf.Section {
	if s == nil || s.Type == elf.SHT_NOBITS || s.Offset > uint64(b.size) || s.FileSize > uint64(b.size)-s.Offset {
		return dwarf.Section{}
	}
	return dwarf.Section{R: io.NewSectionReader(b.file, int64(s.Offset), int64(s.FileSize)), Size: int64(s.FileSize)}
}

// section returns a section's content, decompressed if necessary. It subtracts the decompressed
// bytes from inflate, the remaining budget.
func (b *binaryFile) section(name string, inflate *int64) (dwarf.Section, error) {
	s, old := b.elf.Section(name), false
	if s == nil && strings.HasPrefix(name, ".debug_") {
		s, old = b.elf.Section(".z"+name[1:]), true
	}
	raw := b.raw(s)
	if raw.Size == 0 {
		return dwarf.Section{}, nil
	}
	var r io.Reader
	switch {
	case old:
		const header = 12 // "ZLIB" and the decompressed size
		z, err := zlib.NewReader(io.NewSectionReader(raw.R, header, raw.Size-min(header, raw.Size)))
		if err != nil {
			return dwarf.Section{}, fmt.Errorf("inflate %s: %w", name, err)
		}
		r = z
	case s.Flags&elf.SHF_COMPRESSED != 0:
		r = s.Open()
	default:
		return raw, nil
	}
	var data bytes.Buffer
	n, err := io.Copy(&data, io.LimitReader(r, *inflate+1))
	if *inflate -= n; *inflate < 0 {
		return dwarf.Section{}, fmt.Errorf("inflate %s: %w", name, dwarf.ErrLimit)
	}
	if err != nil {
		return dwarf.Section{}, fmt.Errorf("inflate %s: %w", name, err)
	}
	return dwarf.Section{R: bytes.NewReader(data.Bytes()), Size: n}, nil
}

// symbols reads .symtab or .dynsym. It returns nil if the file has no such table.
func (b *binaryFile) symbols(kind elf.SectionType, text []span, limit int) (t *symtab, err error) {
	defer fence(&err)
	s := b.elf.SectionByType(kind)
	if s == nil || b.raw(s).Size == 0 || int(s.Link) >= len(b.elf.Sections) {
		return nil, nil
	}
	t, err = readSymtab(b.raw(s), b.raw(b.elf.Sections[s.Link]), text, limit)
	if err == nil && b.raw(s).Size/24 > int64(limit) {
		err = fmt.Errorf("more than %d symbols: %w", limit, dwarf.ErrLimit)
	}
	return t, err
}

// has reports whether the file stores the content of any of the named sections.
func (b *binaryFile) has(names ...string) bool {
	for _, name := range names {
		if s := b.elf.Section(name); s != nil && b.raw(s).Size > 0 {
			return true
		}
	}
	return false
}

// buildID returns the GNU build id in hex, or "". A note consists of the sizes of name and content,
// type 3, "GNU\0", content.
func (b *binaryFile) buildID() string {
	buf := b.head(".note.gnu.build-id", 256)
	if len(buf) < 16 || binary.LittleEndian.Uint32(buf[8:]) != 3 || string(buf[12:16]) != "GNU\x00" {
		return ""
	}
	n := binary.LittleEndian.Uint32(buf[4:])
	if n < 2 || n > 64 || int(n) > len(buf)-16 {
		return ""
	}
	return hex.EncodeToString(buf[16 : 16+n])
}

// debugLink returns the name and CRC-32 in .gnu_debuglink: "foo.debug\0", zeros up to a multiple of
// four, checksum.
func (b *binaryFile) debugLink() (name string, crc uint32, ok bool) {
	buf := b.head(".gnu_debuglink", 512)
	end := bytes.IndexByte(buf, 0)
	at := (end + 4) &^ 3
	if end < 1 || at+4 > len(buf) || strings.Contains(string(buf[:end]), "/") || buf[0] == '.' {
		return "", 0, false
	}
	return string(buf[:end]), binary.LittleEndian.Uint32(buf[at:]), true
}

// head returns the first n bytes of a section, or fewer if it is shorter.
func (b *binaryFile) head(name string, n int64) []byte {
	s := b.raw(b.elf.Section(name))
	buf := make([]byte, min(s.Size, n))
	if s.Size > 0 {
		if got, _ := s.R.ReadAt(buf, 0); got < len(buf) {
			return nil
		}
	}
	return buf
}
