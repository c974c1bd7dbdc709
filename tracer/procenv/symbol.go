// SPDX-License-Identifier: Apache-2.0

package procenv

import (
	"debug/elf"
	"errors"

	"github.com/vramprof/vramprof/internal/elffile"
)

var errNoSymbol = errors.New("its dynamic symbols lack environ")

// variable returns the address of the environ pointer in a file before relocation. Symbols that the
// file only refers to do not count.
func variable(f *elffile.File) (uint64, error) {
	for _, name := range []string{"environ", "__environ"} {
		var address uint64
		found := false
		err := f.Lookup(name, func(_ uint64, s elf.Sym64) bool {
			address = s.Value
			found = elf.ST_TYPE(s.Info) == elf.STT_OBJECT && s.Size == 8 && elf.SectionIndex(s.Shndx) != elf.SHN_UNDEF
			return !found
		})
		if found || err != nil {
			return address, err
		}
	}
	return 0, errNoSymbol
}
