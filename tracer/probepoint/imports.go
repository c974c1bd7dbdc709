// SPDX-License-Identifier: Apache-2.0

package probepoint

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"slices"

	"github.com/vramprof/vramprof/internal/elffile"
)

const (
	relocationSize = 24
	maxRelocations = 1 << 16
	stubSize       = 16       // of the procedure linkage table, and how stubs are aligned on x86-64
	maxStubCode    = 16 << 20 // bytes of code that are searched for stubs
)

// Imports returns the stubs through which the library calls named functions of other libraries:
// those of its procedure linkage table, which only the library's own calls pass. It finds none of a
// library that was built without such stubs.
func (l *Library) Imports(names []string) (functions []Function) {
	slots := l.slots(names)
	if len(slots) == 0 {
		return nil
	}
	left := uint64(maxStubCode)
	for _, s := range l.file.Segments {
		if elf.ProgType(s.Type) != elf.PT_LOAD || s.Flags&uint32(elf.PF_X) == 0 {
			continue
		}
		const piece = 1 << 20
		for at := uint64(0); at < s.Filesz && left > 0; at += piece {
			n := min(piece, s.Filesz-at, left)
			left -= n
			code, err := l.file.Read(s.Off+at, n)
			if err != nil {
				break
			}
			for start, slot := range stubs(elf.Machine(l.file.Header.Machine), s.Vaddr+at, code) {
				name := slots[slot]
				if name == "" || slices.ContainsFunc(functions, func(f Function) bool { return f.Name == name }) {
					continue
				}
				offset := s.Off + start - s.Vaddr
				functions = append(functions, Function{Name: name, Symbol: start, Size: stubSize, Offset: offset, Probe: offset, Shape: singleStep})
			}
		}
	}
	return functions
}

// slots returns where the library keeps the addresses of named functions that it calls: the name by
// the slot's address.
func (l *Library) slots(names []string) map[uint64]string {
	relocations, ok1 := l.file.Table(elf.DT_JMPREL)
	symbols, ok2 := l.file.Table(elf.DT_SYMTAB)
	texts, ok3 := l.file.Table(elf.DT_STRTAB)
	if !ok1 || !ok2 || !ok3 {
		return nil
	}
	count := min(l.file.Dynamic[elf.DT_PLTRELSZ]/relocationSize, maxRelocations)
	table, err := l.file.Read(relocations, count*relocationSize)
	if err != nil {
		return nil
	}
	slots := map[uint64]string{}
	for ; len(table) >= relocationSize; table = table[relocationSize:] {
		b, err := l.file.Read(symbols+uint64(binary.LittleEndian.Uint32(table[12:]))*elffile.SymbolSize, elffile.SymbolSize)
		if err != nil {
			continue
		}
		at := texts + uint64(elffile.ParseSymbol(b).Name)
		text, err := l.file.Read(at, min(maxName, max(l.file.Size, at)-at))
		if err != nil {
			continue
		}
		name, _, _ := bytes.Cut(text, []byte{0})
		if slices.Contains(names, string(name)) {
			slots[binary.LittleEndian.Uint64(table)] = string(name)
		}
	}
	return slots
}

// stubs yields where stubs may begin in code at an address, and the slot that each jumps through.
func stubs(machine elf.Machine, address uint64, code []byte) func(yield func(start, slot uint64) bool) {
	return func(yield func(start, slot uint64) bool) {
		step, find := uint64(stubSize), stubX86
		if machine == elf.EM_AARCH64 {
			step, find = 4, stubARM64
		}
		for at := -address % step; at < uint64(len(code)); at += step {
			if slot, ok := find(address+at, code[at:]); ok && !yield(address+at, slot) {
				return
			}
		}
	}
}

// stubX86 reads "[endbr64] [bnd] jmp *slot(%rip)".
func stubX86(address uint64, code []byte) (slot uint64, ok bool) {
	rest := bytes.TrimPrefix(code[:min(len(code), stubSize)], []byte{0xf3, 0x0f, 0x1e, 0xfa})
	rest = bytes.TrimPrefix(rest, []byte{0xf2})
	if len(rest) < 6 || rest[0] != 0xff || rest[1] != 0x25 {
		return 0, false
	}
	end := address + uint64(min(len(code), stubSize)-len(rest)+6)
	return end + uint64(int64(int32(binary.LittleEndian.Uint32(rest[2:])))), true
}

// stubARM64 reads "adrp x16, page; ldr x17, [x16, #offset]; add x16, x16, #offset; br x17".
func stubARM64(address uint64, code []byte) (slot uint64, ok bool) {
	if len(code) < stubSize {
		return 0, false
	}
	var w [4]uint32
	for i := range w {
		w[i] = binary.LittleEndian.Uint32(code[4*i:])
	}
	if w[0]&0x9f00001f != 0x90000010 || w[1]&0xffc003ff != 0xf9400211 || w[2]&0xffc003ff != 0x91000210 || w[3] != 0xd61f0220 {
		return 0, false
	}
	pages := int64(int32((w[0]>>5&0x7ffff)<<2|w[0]>>29&3)<<11) >> 11 // 21 bits, signed
	return address&^0xfff + uint64(pages<<12) + uint64(w[1]>>10&0xfff)*8, true
}
