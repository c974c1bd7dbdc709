// SPDX-License-Identifier: Apache-2.0

package peek

import (
	"debug/elf"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
)

// Symbols by which a Python is found.
const (
	RuntimeSymbol = "_PyRuntime"
	VersionSymbol = "Py_Version" // since 3.11
	TypeSymbol    = "PyType_Type"
)

const (
	maxCandidates = 16 // files that can be the interpreter
	maxLibraries  = 64 // whose variables are looked for
)

// Symbols finds the interpreter among the mapped files and returns the addresses of its symbols.
func (p *Process) Symbols(names ...string) (map[string]uint64, error) {
	if p.symbols != nil {
		return p.symbols, nil
	}
	last := ErrNoPython
	for _, r := range p.interpreters() {
		symbols, err := p.symbolsOf(r, names)
		switch {
		case err != nil:
			last = err
		case symbols[RuntimeSymbol] != 0:
			p.symbols = symbols
			return symbols, nil
		}
	}
	return nil, last
}

// interpreters returns the mapped files that can be a Python, the likeliest first:
// "/usr/lib/libpython3.11.so.1.0", "/usr/bin/python3.13", and the program itself.
func (p *Process) interpreters() []Region {
	program, _ := os.Readlink(p.proc("exe"))
	var found, others []Region
	known := func(list []Region, path string) bool {
		return slices.ContainsFunc(list, func(r Region) bool { return r.Path == path })
	}
	for _, r := range p.regions {
		if !r.File() || known(found, r.Path) || known(others, r.Path) {
			continue
		}
		base := path.Base(r.Path)
		switch {
		case strings.HasPrefix(base, "libpython"), strings.HasPrefix(base, "python"):
			found = append(found, r)
		case r.Path == program:
			others = append(others, r)
		}
	}
	found = append(found, others...)
	return found[:min(len(found), maxCandidates)]
}

func (p *Process) symbolsOf(r Region, names []string) (found map[string]uint64, err error) {
	name := r.Path
	defer func() {
		if r := recover(); r != nil { // a damaged file
			err = fmt.Errorf("read the symbols of %s: %v", untrusted.Clean(name), r)
		}
	}()
	f, err := p.File(r)
	if err != nil {
		return nil, fmt.Errorf("find Python: %w", err)
	}
	object, err := elf.NewFile(f)
	if err != nil {
		return nil, fmt.Errorf("read the symbols of %s: %w", untrusted.Clean(name), err)
	}
	bias, ok := p.bias(object, name)
	if !ok {
		return nil, fmt.Errorf("find %s in the memory map: no segment of it", untrusted.Clean(name))
	}
	found = map[string]uint64{}
	for _, table := range []func() ([]elf.Symbol, error){object.DynamicSymbols, object.Symbols} {
		symbols, _ := table()
		for _, s := range symbols {
			if s.Section != elf.SHN_UNDEF && slices.Contains(names, s.Name) {
				found[s.Name] = bias + s.Value
			}
		}
		if len(found) == len(names) {
			break
		}
	}
	return found, nil
}

// bias returns what to add to addresses of the file. It is 0 for a program at fixed addresses.
func (p *Process) bias(object *elf.File, name string) (uint64, bool) {
	if object.Type == elf.ET_EXEC {
		return 0, true
	}
	for _, r := range p.regions {
		if r.Path != name {
			continue
		}
		for _, s := range object.Progs {
			if s.Type == elf.PT_LOAD && r.Offset == s.Off&^(PageSize-1) {
				return r.Start - s.Vaddr&^(PageSize-1), true
			}
		}
	}
	return 0, false
}

// variablesEnd returns where the variables of a mapped library end that its file does not have,
// since they are 0 at first; 0 if it cannot be told.
func (p *Process) variablesEnd(r Region) (end uint64) {
	name := r.Path
	if end, known := p.variables[name]; known || len(p.variables) >= maxLibraries {
		return end
	}
	defer func() {
		if recover() != nil { // a damaged file
			end = 0
		}
		p.variables[name] = end
	}()
	f, err := p.File(r)
	if err != nil {
		return 0
	}
	object, err := elf.NewFile(f)
	if err != nil {
		return 0
	}
	bias, ok := p.bias(object, name)
	for _, s := range object.Progs {
		if ok && s.Type == elf.PT_LOAD && s.Memsz < 1<<40 {
			end = max(end, bias+s.Vaddr+s.Memsz)
		}
	}
	return end
}
