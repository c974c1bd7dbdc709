// SPDX-License-Identifier: Apache-2.0

package dwarf

import (
	"bytes"
	"debug/elf"
	"path/filepath"
	"testing"
	"time"
)

// sectionsOf are the sections that FuzzLookup takes, in its order.
var sectionsOf = []string{".debug_info", ".debug_abbrev", ".debug_line", ".debug_str", ".debug_line_str", ".debug_ranges", ".debug_rnglists", ".debug_addr", ".debug_str_offsets"}

// FuzzLookup looks an address up in damaged debug information, beginning with what gcc wrote of
// functions inlined into each other. Calls, names and memory stay within their limits, and so
// does the work: steps are counted, not seconds.
func FuzzLookup(f *testing.F) {
	files, err := filepath.Glob("../../testdata/elf/*.so")
	if err != nil || len(files) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, name := range files {
		file, err := elf.Open(name)
		if err != nil {
			f.Fatal(err)
		}
		var text []uint64
		var content [9][]byte
		for i, section := range sectionsOf {
			if s := file.Section(section); s != nil {
				if content[i], err = s.Data(); err != nil {
					f.Fatal(err)
				}
			}
		}
		if s := file.Section(".text"); s != nil {
			for at := s.Addr; at < s.Addr+s.Size; at += max(s.Size/8, 1) {
				text = append(text, at)
			}
		}
		for _, pc := range text {
			f.Add(content[0], content[1], content[2], content[3], content[4], content[5], content[6], content[7], content[8], pc)
		}
		file.Close()
	}
	f.Fuzz(func(t *testing.T, info, abbrev, line, str, lineStr, ranges, rngLists, addr, strOffsets []byte, pc uint64) {
		section := func(b []byte) Section { return Section{R: bytes.NewReader(b), Size: int64(len(b))} }
		s := Sections{
			Info: section(info), Abbrev: section(abbrev), Line: section(line), Str: section(str), LineStr: section(lineStr),
			Ranges: section(ranges), RngLists: section(rngLists), Addr: section(addr), StrOffsets: section(strOffsets),
		}
		const memory = 1 << 20
		limits := Limits{Time: 2 * time.Second, Units: 1 << 10, Rows: 1 << 12, Memory: memory}
		d := New(s, New(s, nil, limits), limits) // itself as the file that it shares entries with
		for _, pc := range []uint64{pc, pc + 1, pc + 0x40} {
			calls, _ := d.Lookup(nil, pc)
			if len(calls) > maxInlined {
				t.Errorf("%d calls", len(calls))
			}
			for _, c := range calls {
				if c.Line < 0 || c.StartLine < 0 || len(c.Name) > maxString || len(c.Linkage) > maxString || len(c.File) > 4*maxString {
					t.Errorf("call with names of %d, %d, %d bytes, lines %d, %d", len(c.Name), len(c.Linkage), len(c.File), c.Line, c.StartLine)
				}
			}
		}
		// Tables are dropped only before the next is read; the largest of a unit come on top.
		size := len(info) + len(abbrev) + len(line) + len(ranges) + len(rngLists)
		if limit := int64(2*memory + 64*size + maxAbbrevs*64); d.Size() > limit {
			t.Errorf("%d bytes kept of sections of %d, want at most %d", d.Size(), size, limit)
		}
	})
}
