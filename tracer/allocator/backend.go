// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"debug/elf"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/internal/elffile"
	"github.com/vramprof/vramprof/tracer/holders/peek"
)

// Backend is which of PyTorch's CUDA allocators a process uses.
type Backend uint8

// Backends.
const (
	Native    Backend = iota // the caching allocator
	Async                    // cudaMallocAsync: blocks only
	Pluggable                // functions of the user: blocks only
)

func (b Backend) String() string {
	return [...]string{"native", "cudaMallocAsync", "pluggable", ""}[b&3]
}

const (
	variable  = "_ZN3c104cuda20CUDACachingAllocator9allocatorE" // leads to the object in use
	maxBases  = 4
	maxTables = 1024 // vtables that are looked at
)

// backendOf returns the backend of a class, by its mangled name.
func backendOf(class string) (Backend, bool) {
	for part, b := range map[string]Backend{"NativeCachingAllocator": Native, "CudaMallocAsyncAllocator": Async, "CUDAPluggableAllocator": Pluggable} {
		if strings.Contains(class, part) {
			return b, true
		}
	}
	return Native, false
}

// inUse is the object that PyTorch allocates with.
type inUse struct {
	variable uint64 // that leads to it; 0: not found
	object   uint64
	backend  Backend
	class    string // mangled, if it is not one of PyTorch's
}

// library is libc10_cuda in a process.
type library struct {
	*reader
	data []peek.Region // its variables
}

// findLibrary returns the variables of libc10_cuda: writable mappings of the file, and memory
// behind them.
func (r *reader) findLibrary() (*library, error) {
	l := &library{reader: r}
	var end uint64
	for _, g := range r.Regions() {
		if ofLibrary(g) || g.Path == "" && g.Start == end && end != 0 {
			end = g.End
			if g.Readable && g.Writable && g.Private && g.End-g.Start <= maxLib {
				l.data = append(l.data, g)
			}
		}
	}
	if len(l.data) == 0 {
		return nil, &Error{Code: NoLibrary}
	}
	return l, nil
}

func ofLibrary(g peek.Region) bool {
	return strings.Contains(g.Path, "libc10_cuda") || strings.Contains(g.Path, "libc10_hip")
}

// inUse finds the object in use: by the symbol of the variable, or as what a variable of the
// library leads to. Without either, it is the native one: its structure is then the only proof.
func (l *library) inUse() (u inUse) {
	if at := l.symbol(); at != 0 {
		u.variable, u.object = at, l.U64(at)
		class := l.classOf(u.object, map[uint64]string{})
		u.backend, u.class = kindOf(class)
		if class != "" || u.object == 0 {
			return u
		}
	}
	return l.searchObject()
}

// kindOf returns the backend of a class, and the class where it is unknown.
func kindOf(class string) (Backend, string) {
	if b, ok := backendOf(class); ok {
		return b, ""
	}
	return Native, class
}

// symbol returns the address of the variable, or 0 without a file or a symbol.
func (l *library) symbol() (at uint64) {
	l.file(func(base uint64, f *elffile.File) {
		_ = f.Lookup(variable, func(_ uint64, s elf.Sym64) bool {
			if s.Shndx != uint16(elf.SHN_UNDEF) && s.Value != 0 {
				at = base + s.Value
			}
			return at == 0
		})
	})
	if !slices.ContainsFunc(l.data, func(g peek.Region) bool { return at >= g.Start && at < g.End }) {
		return 0
	}
	return at
}

// file calls do with the file of the library and what to add to its addresses, if it can be opened.
func (l *library) file(do func(base uint64, f *elffile.File)) {
	l.files(ofLibrary, func(base uint64, f *elffile.File) (more bool) {
		do(base, f)
		return false
	})
}

// files calls do with files, and what to add to their addresses, until it returns false.
func (r *reader) files(match func(g peek.Region) bool, do func(base uint64, f *elffile.File) (more bool)) {
	m, ok := r.Memory.(fileOpener)
	if !ok {
		return
	}
	for _, g := range r.Regions() {
		if g.Offset != 0 || !match(g) {
			continue
		}
		opened, err := m.File(g)
		if err != nil {
			continue
		}
		info, err := opened.Stat()
		if err != nil {
			continue
		}
		f, err := elffile.Open(opened, uint64(info.Size()), elffile.Native())
		if err != nil {
			continue
		}
		for _, s := range f.Segments {
			if elf.ProgType(s.Type) == elf.PT_LOAD && s.Off < pageSize {
				if !do(g.Start-(s.Vaddr-s.Off), f) {
					return
				}
				break
			}
		}
	}
}

// classOf returns the first known class of an object among its own and its bases, its own where
// none is known, or "" for what is no object with type information.
func (l *library) classOf(object uint64, known map[uint64]string) (class string) {
	if !l.pointer(object) {
		return ""
	}
	return l.classOfTable(l.U64(object), known)
}

func (l *library) classOfTable(vtable uint64, known map[uint64]string) (class string) {
	if !l.constant(vtable) {
		return ""
	}
	class, seen := known[vtable]
	if seen || len(known) >= maxTables {
		return class
	}
	info := peek.TypeInfo(l, vtable)
	for range maxBases {
		name, ok := "", l.constant(info)
		if ok {
			name, ok = peek.TypeName(l, info)
		}
		if !ok {
			break
		}
		if class == "" {
			class = name
		}
		if _, ok := backendOf(name); ok {
			class = name
			break
		}
		info = l.U64(info + 16)
	}
	known[vtable] = class
	return class
}

// constant reports whether an address is in a mapped file, as vtables and type information are.
func (l *library) constant(a uint64) bool {
	if a == 0 || a&7 != 0 {
		return false
	}
	i, _ := slices.BinarySearchFunc(l.Regions(), a, func(g peek.Region, a uint64) int {
		if g.End <= a {
			return -1
		}
		return 1
	})
	return i < len(l.Regions()) && l.Regions()[i].Start <= a && l.Regions()[i].File()
}

// searchObject finds a variable that leads to one of PyTorch's allocators. The library has an
// object of the native and of the asynchronous one in any case, but only the variable leads to one.
func (l *library) searchObject() (u inUse) {
	classes := map[uint64]string{}
	for _, g := range l.data {
		var variables, objects []uint64
		b := l.get(g.Start, int(g.End-g.Start))
		for o := 0; o+8 <= len(b); o += 8 {
			if v := word(b, o); l.pointer(v) {
				variables, objects = append(variables, g.Start+uint64(o)), append(objects, v)
			}
		}
		tables := make([]uint64, len(objects))
		l.each(8, objects, func(i int, b []byte) { tables[i] = word(b, 0) })
		for i, vtable := range tables {
			backend, ok := backendOf(l.classOfTable(vtable, classes))
			if ok && (u.variable == 0 || backend != Native) {
				u = inUse{variable: variables[i], object: objects[i], backend: backend}
			}
		}
	}
	return u
}

// deviceObjects finds the list of the devices' allocators among the library's variables: a
// std::vector of pointers to objects with the same offsets of sets.
func (l *library) deviceObjects() (found []uint64, sets []int, err error) {
	for _, g := range l.data {
		b := l.get(g.Start, int(g.End-g.Start))
		for o := 0; o+24 <= len(b) && !l.over; o += 8 {
			begin, end, room := word(b, o), word(b, o+8), word(b, o+16)
			if begin >= end || end > room || (end-begin)%8 != 0 || end-begin > maxDevices*8 || room-begin > 2*maxDevices*8 || !l.pointer(begin) {
				continue
			}
			if objects, s := l.deviceList(l.get(begin, int(end-begin))); len(s) > len(sets) || len(s) == len(sets) && len(objects) > len(found) {
				found, sets = objects, s
			}
		}
	}
	if found == nil {
		return nil, nil, &Error{Code: NoDevices}
	}
	return found, sets, nil
}

func (l *library) deviceList(list []byte) (objects []uint64, sets []int) {
	for i := 0; i < len(list); i += 8 {
		at := word(list, i)
		if !l.pointer(at) {
			return nil, nil
		}
		s := l.setsOf(l.get(at, objectSize), at)
		if len(s) < 2 || s[0] < 64 || sets != nil && !slices.Equal(s, sets) {
			return nil, nil
		}
		objects, sets = append(objects, at), s
	}
	return objects, sets
}
