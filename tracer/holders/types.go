// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/holders/peek"
)

// kind is how an object is expanded.
type kind uint8

const (
	kindOther kind = iota // attributes, and each word of the structure
	kindAtom              // holds nothing: numbers, strings of bytes, code
	kindStr
	kindDict
	kindList
	kindTuple
	kindSet
	kindDeque
	kindFunction
	kindMethod
	kindCell
	kindModule
	kindType
	kindGenerator
	kindFrame
	kindWeak      // a weak reference
	kindTraceback // of an exception
	kindPlain     // attributes only: a class that derives a number
)

// builtins are types that the interpreter itself defines, by tp_name.
var builtins = map[string]kind{
	"set": kindSet, "frozenset": kindSet, "function": kindFunction, "method": kindMethod, "cell": kindCell, "module": kindModule,
	"generator": kindGenerator, "coroutine": kindGenerator, "async_generator": kindGenerator, "frame": kindFrame,
	"code": kindAtom, "float": kindAtom, "complex": kindAtom, "NoneType": kindAtom, "ellipsis": kindAtom, "NotImplementedType": kindAtom,
	"bytearray": kindAtom, "range": kindAtom, "getset_descriptor": kindAtom, "wrapper_descriptor": kindAtom,
	"method_descriptor": kindAtom, "member_descriptor": kindAtom, "classmethod_descriptor": kindAtom, "method-wrapper": kindAtom,
	"weakref": kindWeak, "weakref.ReferenceType": kindWeak, "weakproxy": kindWeak, "weakref.ProxyType": kindWeak, "weakcallableproxy": kindWeak, "weakref.CallableProxyType": kindWeak,
	"PyCapsule": kindAtom, "traceback": kindTraceback,
}

// pyType is what the walk needs of one type.
type pyType struct {
	address     uint64
	name        string // tp_name: "Trainer", "collections.deque"
	flags       uint64
	basic, item uint64
	dictOffset  int64
	weakOffset  uint64
	kind        kind
	tensor      bool // derives torch's tensor
	pybind      bool // made by pybind11
	context     bool // derives torch's context of a custom function
	storage     bool // derives torch's storage: C++ can keep it alive
	array       bool // derives NumPy's array
	parameter   bool // derives torch.nn.Parameter
	optimizer   bool // derives an optimizer that clears gradients
	exact       bool // the builtin itself, not derived from it
	members     []member
	short       string // class, once it was asked for
}

func (t *pyType) gc() bool   { return t.flags&flagGC != 0 }
func (t *pyType) heap() bool { return t.flags&flagHeap != 0 }

// class returns the name that people know: "deque" of "collections.deque".
func (t *pyType) class() string {
	if t.short == "" {
		t.short = cut60(untrusted.Clean(t.name[strings.LastIndexByte(t.name, '.')+1:]))
	}
	return t.short
}

// typeOf returns the type of the object at an address, or nil.
func (py *python) typeOf(a uint64) *pyType {
	if !peek.Pointer(a) {
		return nil
	}
	at := py.U64(a + obType)
	slot := &py.typeCache[at>>4%uint64(len(py.typeCache))]
	if t := *slot; t != nil && t.address == at {
		return t
	}
	t, known := py.types[at]
	if !known {
		t = py.readType(at)
		if t != nil || len(py.types) < 1<<20 {
			py.types[at] = t
		}
	}
	if t != nil {
		*slot = t
	}
	return t
}

// readType reads a type object, or returns nil for what is none.
func (py *python) readType(at uint64) *pyType {
	if !peek.Pointer(at) {
		return nil
	}
	if meta := py.U64(at + obType); meta != py.typeType && (!peek.Pointer(meta) || py.U64(meta+tpFlags)&flagType == 0 || py.U64(meta+obType) == 0) {
		return nil
	}
	t := &pyType{
		address: at, flags: py.U64(at + tpFlags), basic: py.U64(at + tpBasicSize), item: py.U64(at + tpItemSize),
		dictOffset: int64(py.U64(at + tpDictOff)), weakOffset: py.U64(at + tpWeakList),
	}
	if t.flags&flagReady == 0 || t.basic < 16 || t.basic > 1<<20 || t.item > 4096 {
		return nil
	}
	var ok bool
	if t.name, ok = py.Text(py.U64(at + tpName)); !ok || t.name == "" {
		return nil
	}
	mro := py.U64(at + tpMRO)
	n := py.U64(mro + obSize)
	if !peek.Pointer(mro) || n == 0 || n > 256 {
		return nil
	}
	t.kind = kindOfFlags(t.flags)
	for i := range n {
		py.readBase(t, py.U64(mro+py.l.tupleItems+8*i), i == 0)
	}
	t.optimizer = t.optimizer && py.clearsGradients(mro, n) // others search hyperparameters, or routes
	switch {
	case t.kind != kindOther:
	case t.flags&(flagHeap|flagGC) == 0 && t.basic < 24:
		t.kind = kindAtom
	}
	if t.kind == kindAtom && t.heap() && t.flags&(flagInt|flagBytes) != 0 {
		t.kind = kindPlain
	}
	if t.flags&flagError != 0 {
		t.members = append(t.members, py.l.exceptionFields()...)
	}
	return t
}

func kindOfFlags(flags uint64) kind {
	switch {
	case flags&flagDict != 0:
		return kindDict
	case flags&flagList != 0:
		return kindList
	case flags&flagTuple != 0:
		return kindTuple
	case flags&flagType != 0:
		return kindType
	case flags&flagStr != 0:
		return kindStr
	case flags&(flagInt|flagBytes) != 0:
		return kindAtom
	}
	return kindOther
}

// readBase adds what a type has from one of its bases, itself included.
func (py *python) readBase(t *pyType, base uint64, self bool) {
	name, ok := py.Text(py.U64(base + tpName))
	if !ok {
		return
	}
	heap := py.U64(base+tpFlags)&flagHeap != 0
	if !heap && t.kind == kindOther {
		if k, known := builtins[name]; known {
			t.kind = k
		}
	}
	switch name {
	case "collections.deque":
		t.kind = kindDeque
	case "torch._C.TensorBase", "torch._C._TensorBase":
		t.tensor = true
	case "pybind11_object", "pybind11_builtins.pybind11_object":
		t.pybind = true
	case "torch._C.StorageBase":
		t.storage = true
	case "numpy.ndarray":
		t.array = true
	case "torch._C._FunctionBase":
		t.context = true
	case "Parameter", "UninitializedParameter":
		t.parameter = heap
	}
	t.optimizer = t.optimizer || heap && strings.HasSuffix(name, "Optimizer")
	if self {
		t.exact = !heap
	}
	if heap || !t.exact || t.kind == kindOther {
		py.readMembers(t, base, heap)
	}
}

// clearsGradients reports whether one of the n classes in an order of resolution has zero_grad.
func (py *python) clearsGradients(mro, n uint64) (does bool) {
	for i := range n {
		if base := py.U64(mro + py.l.tupleItems + 8*i); py.U64(base+tpFlags)&flagHeap != 0 {
			py.eachItem(py.U64(base+tpDict), func(key, _ uint64) { does = does || py.str(key) == "zero_grad" })
		}
	}
	return does
}

// readMembers reads the slots of a class, and the documented fields of a C structure.
func (py *python) readMembers(t *pyType, base uint64, heap bool) {
	const size, object, objectOrError = 40, 6, 16 // T_OBJECT, T_OBJECT_EX
	at := py.U64(base + tpMembers)
	if !peek.Pointer(at) {
		return
	}
	for range 128 {
		name := py.U64(at)
		if name == 0 || len(t.members) >= 256 {
			return
		}
		kind, offset := py.U32(at+8), py.U64(at+16)
		if (kind == object || kind == objectOrError) && offset >= 16 && offset < 1<<16 && offset%8 == 0 {
			if text, ok := py.Text(name); ok {
				t.members = append(t.members, member{text, offset})
			}
		}
		at += size
	}
}

// memberAt returns the name of the field at an offset, or "".
func (t *pyType) memberAt(offset uint64) string {
	for _, m := range t.members {
		if m.offset == offset {
			return m.name
		}
	}
	return ""
}

// attributes returns where an instance has its attributes: a dictionary, or a table of values whose
// keys its type has.
func (py *python) attributes(a uint64, t *pyType) (dict, keys, values uint64) {
	if t.flags&flagManaged == 0 || py.l.minor < 11 {
		return py.plainDict(a, t), 0, 0
	}
	word := py.U64(a - 24)
	switch {
	case py.l.minor == 11:
		if values = py.U64(a - 32); word == 0 && peek.Pointer(values) {
			return 0, py.U64(t.address + py.l.cachedKeys), values
		}
	case py.l.minor == 12:
		if word&1 == 1 {
			return 0, py.U64(t.address + py.l.cachedKeys), word + 1
		}
	default:
		word &^= 7
		if word == 0 && t.flags&flagInline != 0 && py.U8(a+t.basic+3) != 0 { // capacity, size, embedded, valid
			return 0, py.U64(t.address + py.l.cachedKeys), a + t.basic + py.l.dictValues
		}
	}
	return word, 0, 0
}

// plainDict returns the dictionary at tp_dictoffset, which counts from the end when it is negative.
func (py *python) plainDict(a uint64, t *pyType) uint64 {
	at := t.dictOffset
	if at < 0 {
		n := int64(py.U64(a + obSize))
		n = max(n, -n)
		if n < 0 || n > maxEntries {
			return 0
		}
		at += int64((t.basic + uint64(n)*t.item + 7) &^ 7)
	}
	if at < 16 || at > 1<<40 {
		return 0
	}
	return py.U64(a + uint64(at))
}

// moduleOf returns the package that defines a class: "numba" of "numba.cuda.cudadrv.devicearray".
func (py *python) moduleOf(t *pyType) (module string) {
	module, _, dotted := strings.Cut(t.name, ".")
	if dotted {
		return module
	}
	module = ""
	if t.heap() {
		py.eachItem(py.U64(t.address+tpDict), func(key, value uint64) {
			if module == "" && py.str(key) == "__module__" {
				module, _, _ = strings.Cut(py.str(value), ".")
			}
		})
	}
	return module
}

// isLive reports whether an object's count of references can be one. In a free block of Python's
// allocator a pointer to the next one is in its place.
func (py *python) isLive(a uint64) bool {
	n := py.U64(a)
	return uint32(n) != 0 && n>>32&0xffff == 0
}

// plain reports whether objects of a type can hold an address as it is. Containers do not: a word
// of a set or of a dictionary can be the hash of an integer.
func (t *pyType) plain() bool {
	return t.kind == kindOther || t.kind == kindPlain || t.kind == kindAtom && t.flags&flagInt == 0
}

const intDigits = 24 // of a Python integer, behind its size

// isTwoDigits reports whether a Python integer is positive and has two digits.
func (py *python) isTwoDigits(a uint64) bool {
	if py.l.minor >= 12 {
		return py.U64(a+16) == 2<<3 // the lowest bits are the sign
	}
	return py.U64(a+16) == 2
}
