// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/tracer/holders/peek"
)

// What the walk knows of PyTorch's C++ classes, by mangled name.
const (
	tensorImpl   = "N3c1010TensorImplE"
	storageImpl  = "N3c1011StorageImplE"
	graphNode    = "N5torch8autograd4NodeE"
	autogradMeta = "N5torch8autograd12AutogradMetaE"
	pythonNode   = "N5torch8autograd6PyNodeE"
)

// role is what an object of a C++ class means for the walk.
type role uint8

const (
	roleTensor role = 1 << iota
	roleStorage
	roleNode
	roleMeta
	roleHook
	rolePythonNode
	roleShared // std::make_shared: counts in front of the object
	roleScript // an object, list or tuple of TorchScript
)

// class is a polymorphic C++ class, read from its type information.
type class struct {
	name  string // mangled
	roles role
}

// is reports whether a class is or derives what has a role. A nil class has none.
func (c *class) is(r role) bool { return c != nil && c.roles&r != 0 }

// rtti recognizes polymorphic C++ objects: the word in front of a vtable leads to the type's
// information, which has its mangled name and its bases. No symbols are needed.
type rtti struct {
	*peek.Copy
	files  []peek.Span       // where libraries are mapped
	tables map[uint64]*class // by address of the vtable; nil for what is none
	infos  map[uint64]*class
	recent [256]struct { // what was asked for last
		table uint64
		class *class
	}
}

func newRTTI(c *peek.Copy) *rtti {
	r := &rtti{Copy: c, tables: map[uint64]*class{}, infos: map[uint64]*class{}}
	for _, m := range c.Regions() {
		if !m.File() || m.Forbidden() {
			continue
		}
		if n := len(r.files); n > 0 && r.files[n-1].End == m.Start {
			r.files[n-1].End = m.End
		} else {
			r.files = append(r.files, peek.Span{Start: m.Start, End: m.End})
		}
	}
	return r
}

// inFile reports whether an address is in a mapped library.
func (r *rtti) inFile(a uint64) bool {
	if len(r.files) == 0 || a < r.files[0].Start || a >= r.files[len(r.files)-1].End {
		return false
	}
	_, found := slices.BinarySearchFunc(r.files, a, func(s peek.Span, a uint64) int {
		switch {
		case s.End <= a:
			return -1
		case s.Start > a:
			return 1
		}
		return 0
	})
	return found
}

// classOf returns the class of the object at an address, or nil.
func (r *rtti) classOf(a uint64) *class {
	if !peek.Pointer(a) {
		return nil
	}
	p := r.Page(a)
	if p == nil {
		return nil
	}
	return r.classOfTable(binary.LittleEndian.Uint64(p[a%peek.PageSize:])) // an object is aligned
}

func (r *rtti) classOfTable(vtable uint64) *class {
	slot := &r.recent[vtable>>4%uint64(len(r.recent))]
	if slot.table == vtable { // of no address the class is nil
		return slot.class
	}
	if !peek.Pointer(vtable) || !r.inFile(vtable) {
		slot.table, slot.class = vtable, nil
		return nil
	}
	c, known := r.tables[vtable]
	if !known {
		c = r.classOfInfo(peek.TypeInfo(r, vtable), 0)
		if len(r.tables) < 1<<20 {
			r.tables[vtable] = c
		}
	}
	slot.table, slot.class = vtable, c
	return c
}

// classOfInfo reads a type_info: a vtable of its own, the name, and depending on its kind the base
// or a list of bases.
func (r *rtti) classOfInfo(info uint64, depth int) *class {
	if c, known := r.infos[info]; known {
		return c
	}
	if !peek.Pointer(info) || !r.inFile(info) || !r.inFile(r.U64(info)) {
		return nil
	}
	name, ok := peek.TypeName(r, info)
	if !ok {
		return nil
	}
	c := &class{name: name, roles: roleOf(name)}
	r.infos[info] = c
	if depth > 12 {
		return c
	}
	base := r.U64(info + 16)
	if b := r.classOfInfo(base, depth+1); b != nil {
		c.roles |= b.roles
		return c
	}
	if n := base >> 32; base&0xffffffff < 4 && n < 16 { // flags and number
		for i := range n {
			if b := r.classOfInfo(r.U64(info+24+16*i), depth+1); b != nil {
				c.roles |= b.roles
			}
		}
	}
	return c
}

func roleOf(name string) (r role) {
	switch name {
	case tensorImpl:
		r = roleTensor
	case storageImpl:
		r = roleStorage
	case graphNode:
		r = roleNode
	case autogradMeta:
		r = roleMeta
	case pythonNode:
		r = rolePythonNode
	}
	if strings.HasPrefix(name, "N5torch8autograd") && strings.Contains(name, "Hook") {
		r |= roleHook
	}
	if strings.HasPrefix(name, "N3c106ivalue") || strings.HasPrefix(name, "N3c106detail8ListImpl") {
		r |= roleScript
	}
	if strings.HasPrefix(name, "St23_Sp_counted_ptr_inplace") {
		r |= roleShared
	}
	return r
}
