// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"

	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
)

// The profiler expands an expression of .eh_frame to 50 times its size, and decodes Go's tables
// again for each function that refers to them: without these limits, a file of a megabyte takes all
// memory.
const (
	maxEntry  = 256 << 10 // bytes of an entry of .eh_frame or .debug_frame
	maxGoWork = 16 << 20  // bytes of Go's tables that are decoded for functions
	maxGoUnit = 1 << 20   // files, and files of units, in Go's tables
)

var (
	errBomb = errors.New("its unwind tables grow when they are decoded, as no compiler's do")
	errForm = errors.New("its .eh_frame_hdr has a form that no linker writes")
)

// checkedTables refuses files whose tables grow beyond all proportion.
type checkedTables struct {
	nativeunwind.StackDeltaProvider
}

func (c checkedTables) GetIntervalDataForFile(ref *pfelf.Reference) (*stackdeltatypes.IntervalData, error) {
	file, err := ref.GetELF()
	if err != nil {
		return nil, err
	}
	if err := checkFrames(file); err != nil {
		return nil, err
	}
	return c.StackDeltaProvider.GetIntervalDataForFile(ref)
}

// checkFrames checks the lengths of all entries that the profiler will read.
func checkFrames(file *pfelf.File) error {
	from := file.Underlying()
	if f, ok := from.(*boundedFile); ok && f.log != nil { // a table is built from the profiler's reads
		log := f.log
		f.log = nil
		defer func() { f.log = log }()
	}
	offset, length, err := frameTable(file)
	if err != nil {
		return err
	}
	if err := checkEntries(io.NewSectionReader(from, offset, length), false); err != nil {
		return err
	}
	if s := file.Section(".debug_frame"); stored(s) {
		return checkEntries(io.NewSectionReader(from, int64(s.Offset), int64(s.Size)), true)
	}
	return nil
}

func stored(s *pfelf.Section) bool {
	return s != nil && s.Type != elf.SHT_NOBITS && s.Flags&elf.SHF_COMPRESSED == 0 && int64(s.Size) > 0
}

// frameTable finds .eh_frame as the profiler does: by its section, or by the address in
// .eh_frame_hdr. The profiler knows more forms of that than the one that linkers write, which are
// errForm here. The length is 0 where the profiler finds nothing.
func frameTable(file *pfelf.File) (offset, length int64, err error) {
	if s := file.Section(".eh_frame"); stored(s) {
		return int64(s.Offset), int64(s.Size), nil
	}
	var at, address uint64
	if s := file.Section(".eh_frame_hdr"); stored(s) {
		at, address = s.Offset, s.Addr
	} else if p := file.ProgByType(elf.PT_GNU_EH_FRAME); p != nil {
		at, address = p.Off, p.Vaddr
	}
	const relative32 = 0x1b // DW_EH_PE_pcrel | DW_EH_PE_sdata4
	var head [8]byte
	switch n, _ := file.Underlying().ReadAt(head[:], int64(at)); {
	case at == 0, n < 2:
		return 0, 0, nil
	case head[1] != relative32:
		return 0, 0, errForm
	case n < len(head):
		return 0, 0, nil
	}
	address += 4 + uint64(int32(binary.LittleEndian.Uint32(head[4:])))
	p := file.ProgByVirtualAddress(address)
	if p == nil {
		return 0, 0, nil
	}
	offset = int64(p.Off + address - p.Vaddr)
	return offset, int64(p.Filesz+p.Off) - offset, nil
}

// checkEntries walks a table to where the profiler ends: at its end, a length of zero, or damage.
func checkEntries(table *io.SectionReader, debug bool) error {
	window := make([]byte, 64<<10)
	var start, end int64 // of the window
	head := func(at int64) (h entryHead, ok bool) {
		const most = 20 // 64-bit lengths
		if at < start || at > end-most {
			n, _ := table.ReadAt(window, at)
			start, end = at, at+int64(n)
		}
		return parseHead(window[at-start:end-start], at, debug)
	}
	var known [16]int64 // places of CIEs that were checked
	next := 0
	for at := int64(0); at < table.Size(); {
		h, ok := head(at)
		if !ok {
			return nil
		}
		if h.size > maxEntry {
			return errBomb
		}
		at = h.end
		if h.isCIE || slices.Contains(known[:], h.cie+1) {
			continue
		}
		var far [20]byte
		n, _ := table.ReadAt(far[:], h.cie)
		if c, ok := parseHead(far[:n], h.cie, debug); ok && c.size > maxEntry {
			return errBomb
		}
		known[next%len(known)] = h.cie + 1
		next++
	}
	return nil
}

// entryHead is the beginning of a CIE or FDE.
type entryHead struct {
	size, end int64 // bytes after the head; offset of the next entry
	cie       int64 // offset of an FDE's CIE
	isCIE     bool
}

func parseHead(b []byte, at int64, debug bool) (h entryHead, ok bool) {
	if len(b) < 8 {
		return h, false
	}
	length, id, width, first := int64(binary.LittleEndian.Uint32(b)), int64(binary.LittleEndian.Uint32(b[4:])), int64(4), int64(4)
	marker := int64(math.MaxUint32)
	switch {
	case length == math.MaxUint32:
		if len(b) < 20 {
			return h, false
		}
		length, id = int64(binary.LittleEndian.Uint64(b[4:])), int64(binary.LittleEndian.Uint64(b[12:]))
		width, first, marker = 8, 12, -1
	case length >= 0xfffffff0, length == 0:
		return h, false
	}
	if length < width || length > math.MaxInt64-at-first {
		return h, false
	}
	h = entryHead{size: length - width, end: at + first + length, cie: id, isCIE: debug && id == marker || !debug && id == 0}
	if !debug {
		h.cie = at + first - id
	}
	return h, h.isCIE || h.cie >= 0
}

// goSignatures are the beginnings of Go's tables after their first byte: the processor's quantum
// and a pointer's size follow.
var goSignatures = [][]byte{{0xff, 0xff, 0xff, 0, 0, 1, 8}, {0xff, 0xff, 0xff, 0, 0, 4, 8}}

// isGoBomb reports whether bytes that the profiler read have tables of Go that would take it long.
func isGoBomb(read []byte) bool {
	work := maxGoWork
	for _, signature := range goSignatures {
		for at := 1; at < len(read); {
			n := bytes.Index(read[at:], signature)
			if n < 0 {
				break
			}
			if !affordable(read[at+n-1:], &work) {
				return true
			}
			at += n + len(signature)
		}
	}
	return false
}

// affordable subtracts what decoding Go's tables costs, and reports whether work is left. It takes
// no more time than that.
func affordable(data []byte, work *int) bool {
	const head, words = 16, 7
	if len(data) < head+8*words {
		return true
	}
	width, entry, fields := 4, 8, data[head:] // from Go 1.18 on
	switch data[0] {
	case 0xf0, 0xf1:
		fields = append(bytes.Clone(fields[:8]), fields[16:8*words]...) // without the begin of the code
	case 0xfa:
		width, entry, fields = 8, 16, fields[:8*(words-1)]
	default:
		return true
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(fields[8*i:]) }
	units, files, steps, functions := word(2), word(3), word(4), word(5)
	if units > files || files > steps || steps > functions || functions > uint64(len(data)) {
		return true // the profiler refuses it
	}
	*work -= int(steps-files) / 16
	if files-units > 4*maxGoUnit || bytes.Count(data[files:steps], []byte(".s\x00")) > maxGoUnit {
		return false
	}
	table := data[functions:]
	count := min(binary.LittleEndian.Uint64(data[8:]), uint64(len(table)/entry))
	*work -= 8
	for i := range count {
		*work -= 8
		at := binary.LittleEndian.Uint64(table[i*uint64(entry)+uint64(entry-8):]) >> (8 * (8 - width))
		if at > uint64(len(table)) || uint64(len(table))-at < uint64(width)+20 {
			continue
		}
		for _, field := range []uint64{12, 16} { // pcsp, of which all steps are decoded; pcfile
			from := binary.LittleEndian.Uint32(table[at+uint64(width)+field:])
			if uint64(from) < functions-steps {
				*work -= goSteps(data[steps+uint64(from):functions], field == 12, *work)
			}
		}
		if *work < 0 {
			return false
		}
	}
	return *work >= 0
}

// goSteps returns how many bytes the steps of a function have, or one step, or more than most.
func goSteps(b []byte, all bool, most int) (n int) {
	for first := true; n <= most && n < len(b) && (first || all && b[n] != 0); first = false {
		for range 2 {
			for n < len(b) && n <= most && b[n]&0x80 != 0 {
				n++
			}
			n++
		}
	}
	return n
}
