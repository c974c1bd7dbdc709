// SPDX-License-Identifier: Apache-2.0

package dwarf

import (
	"bytes"
	"debug/elf"
	"path/filepath"
	"testing"
	"time"
)

// sectionsOf lists the sections that FuzzLookup takes, in order.
var sectionsOf = []string{".debug_info", ".debug_abbrev", ".debug_line", ".debug_str", ".debug_line_str", ".debug_ranges", ".debug_rnglists", ".debug_addr", ".debug_str_offsets"}

// FuzzLookup looks up an address in damaged debug information. The seed is gcc's output for nested
// inlined functions. Calls, names, memory and work must stay within their limits; work is counted
// in steps, not seconds.
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
		d := New(s, New(s, nil, limits), limits) // the same file as its own alt file
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
		// Tables are dropped before the next is read, so the largest table of a unit may exceed the
		// limit.
		size := len(info) + len(abbrev) + len(line) + len(ranges) + len(rngLists)
		if limit := int64(2*memory + 64*size + maxAbbrevs*64); d.Size() > limit {
			t.Errorf("%d bytes kept of sections of %d, want at most %d", d.Size(), size, limit)
		}
	})
}
