// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf16"

	"github.com/vramprof/vramprof/tracer/holders/peek"
)

const (
	maxEntries     = 1 << 28 // in one container
	maxText        = 4 << 10 // bytes of a string that are read
	maxInterps     = 64
	runtimeWords   = 512  // of _PyRuntime that are searched for the first interpreter
	interpreterMax = 8192 // words of an interpreter's state that are searched for fields
)

// ErrPython reports a Python whose memory this package cannot interpret.
var ErrPython = errors.New("cannot read this Python")

// python reads objects of one CPython.
type python struct {
	*peek.Copy
	l          layout
	runtime    uint64
	version    string // "3.13.5", as far as it is known
	typeType   uint64
	typeCache  [1024]*pyType
	types      map[uint64]*pyType // nil for an address that is no type
	stateShift uint               // of the bits for the storage of a string
	modules    uint64             // sys.modules of the first interpreter
	interps    []uint64
	clock      *clock
}

// clock ends loops over what a process claims to have.
type clock struct {
	ctx   context.Context
	calls uint
	over  bool
}

// late reports whether the time is over. It looks at the time once in 256 calls.
func (py *python) late() bool {
	c := py.clock
	if c.calls++; c.calls%256 == 1 && c.ctx.Err() != nil {
		c.over = true
	}
	return c.over
}

// text returns why a walk ended early: "stopped: the machine is too busy: …".
func (c *clock) text() string {
	switch cause := context.Cause(c.ctx); cause {
	case context.Canceled, nil:
		return "stopped before its end"
	case context.DeadlineExceeded:
		return "stopped after the time limit"
	default:
		return "stopped: " + cause.Error()
	}
}

// newPython finds the interpreter and proves that its objects can be read: sys.modules must hold
// modules named "sys" and "builtins".
func newPython(ctx context.Context, c *peek.Copy) (*python, error) {
	symbols, err := c.Symbols(peek.RuntimeSymbol, peek.VersionSymbol, peek.TypeSymbol)
	if err != nil {
		return nil, err
	}
	py := &python{Copy: c, runtime: symbols[peek.RuntimeSymbol], typeType: symbols[peek.TypeSymbol], types: map[uint64]*pyType{}, clock: &clock{ctx: ctx}}
	if py.runtime == 0 || py.typeType == 0 {
		return nil, peek.ErrNoPython
	}
	var versions []int
	if at := symbols[peek.VersionSymbol]; at != 0 {
		var b [4]byte
		if !c.Read(b[:], at) {
			_, err := c.Memory().ReadAt(b[:], at)
			return nil, fmt.Errorf("%w: %w", ErrPython, err)
		}
		v := binary.LittleEndian.Uint32(b[:])
		py.version = fmt.Sprintf("%d.%d.%d", v>>24, v>>16&255, v>>8&255)
		if v>>24 != 3 {
			return nil, fmt.Errorf("%w: version %s", ErrPython, py.version)
		}
		versions = []int{int(v >> 16 & 255)}
	} else {
		versions = []int{10, 9, 8} // which of them shows in the layout of functions
	}
	if c.U64(py.typeType+obType) != py.typeType {
		return nil, py.refuse("its objects have other headers (is it a free-threaded build?)")
	}
	for _, minor := range versions {
		var known bool
		if py.l, known = layoutOf(minor); !known {
			return nil, py.refuse("this version is not known")
		}
		if err = py.findInterpreters(); err == nil && (py.version != "" || py.provesOld()) {
			return py, nil
		}
	}
	if err == nil {
		err = py.refuse("it is none of 3.8, 3.9 and 3.10")
	}
	return nil, err
}

func (py *python) refuse(why string) error {
	if py.version == "" {
		return fmt.Errorf("%w: %s", ErrPython, why)
	}
	return fmt.Errorf("%w %s: %s", ErrPython, py.version, why)
}

// findInterpreters finds the first interpreter and those that it links to.
func (py *python) findInterpreters() error {
	py.interps = nil
	if py.l.minor >= 13 {
		if err := py.debugOffsets(); err != nil {
			return err
		}
		if first := py.U64(py.runtime + py.l.interpHead); peek.Pointer(first) {
			py.enter(first)
		}
	}
	for i := uint64(0); i < runtimeWords && len(py.interps) == 0; i++ {
		if first := py.U64(py.runtime + 8*i); peek.Pointer(first) && py.hasThread(first) {
			py.enter(first)
		}
	}
	if len(py.interps) == 0 {
		return py.refuse("no interpreter with modules found")
	}
	for next := py.interps[0]; len(py.interps) < maxInterps; {
		if next = py.U64(next + py.l.interpNext); !peek.Pointer(next) {
			break
		}
		py.interps = append(py.interps, next)
	}
	return nil
}

// enter takes an interpreter whose modules are found.
func (py *python) enter(interp uint64) {
	if py.l.modulesField != 0 {
		if d := py.U64(interp + py.l.modulesField); py.isModules(d) {
			py.interps, py.modules = []uint64{interp}, d
			return
		}
	}
	for i := uint64(0); i < interpreterMax; i++ {
		if d := py.U64(interp + 8*i); peek.Pointer(d) && py.isModules(d) {
			py.interps, py.modules, py.l.modulesField = []uint64{interp}, d, 8*i
			return
		}
	}
}

// hasThread reports whether something can be an interpreter's state: one of its first words leads
// to a thread (previous, next, interpreter) that points back.
func (py *python) hasThread(interp uint64) bool {
	for i := uint64(0); i < 32; i++ {
		if t := py.U64(interp + 8*i); peek.Pointer(t) && py.U64(t+16) == interp && py.U64(t) == 0 {
			return true
		}
	}
	return false
}

// isModules reports whether an object is sys.modules, and finds on the way how strings are stored.
func (py *python) isModules(d uint64) bool {
	t := py.typeOf(d)
	if t == nil || t.kind != kindDict || t.name != "dict" {
		return false
	}
	for _, shift := range []uint{2, 8, 16} {
		py.stateShift = shift
		proofs := 0
		py.eachItem(d, func(key, value uint64) {
			if t := py.typeOf(value); t != nil && t.kind == kindModule {
				if name := py.str(key); name == "sys" || name == "builtins" {
					proofs++
				}
			}
		})
		if proofs == 2 {
			return true
		}
	}
	return false
}

// debugOffsets reads what 3.13 and later say about themselves.
func (py *python) debugOffsets() error {
	const cookie = 0x7970677562656478 // "xdebugpy"
	if py.U64(py.runtime) != cookie {
		return py.refuse("no debug offsets")
	}
	field := func(i uint64) uint64 { return py.U64(py.runtime + 8 + 8*i) }
	if field(1) != 0 {
		return py.refuse("it is a free-threaded build")
	}
	shift, thread := uint64(0), uint64(18) // fields that 3.14 has more
	if py.l.minor >= 14 {
		shift, thread = 1, 21
	}
	l := &py.l
	for _, f := range []struct {
		at    uint64
		field *uint64
	}{
		{4, &l.interpHead}, {7, &l.interpNext}, {8, &l.threadsHead}, {9 + shift, &l.gcState}, {10 + shift, &l.modulesField},
		{11 + shift, &l.sysDict}, {thread + 4, &l.tsFrame}, {thread + 10, &l.frPrevious}, {thread + 11, &l.frCode},
		{thread + 13, &l.frLocals}, {thread + 14, &l.frOwner},
	} {
		if *f.field = field(f.at); *f.field > 1<<20 {
			return py.refuse("its debug offsets are out of range")
		}
	}
	return nil
}

// provesOld reports whether the layout of functions fits: 3.8 and 3.9 have it as 3.10 does not.
func (py *python) provesOld() bool {
	votes, tried := 0, 0
	py.eachItem(py.modules, func(_, module uint64) {
		if t := py.typeOf(module); t == nil || t.kind != kindModule || tried > 200 {
			return
		}
		py.eachItem(py.U64(module+moduleDict), func(_, f uint64) {
			if t := py.typeOf(f); t != nil && t.kind == kindFunction {
				tried++
				if code := py.typeOf(py.U64(f + py.l.fnCode)); code != nil && code.name == "code" {
					votes++
				}
			}
		})
	})
	if tried == 0 || votes*10 < tried*9 {
		return false
	}
	py.version = fmt.Sprintf("3.%d", py.l.minor)
	if py.l.minor < 10 {
		py.version = "3.8 or 3.9"
	}
	return true
}

// str returns the text of a string object, cut off at maxText bytes, or "".
func (py *python) str(a uint64) string {
	if t := py.typeOf(a); t == nil || t.kind != kindStr {
		return ""
	}
	n, state := py.U64(a+strLength), py.U32(a+strState)>>py.stateShift
	width, compact, ascii := uint64(state&7), state>>3&1 == 1, state>>4&1 == 1
	if n == 0 || !compact || width != 1 && width != 2 && width != 4 {
		return ""
	}
	n = min(n, maxText/width)
	at := a + py.l.compactSize
	if ascii {
		at = a + py.l.asciiSize
	}
	b := make([]byte, n*width)
	if !py.Read(b, at) {
		return ""
	}
	if ascii {
		return string(b)
	}
	return decode(b, int(width))
}

// decode reads text as CPython stores it: Latin-1, UCS-2 or UCS-4.
func decode(b []byte, width int) string {
	runes := make([]rune, 0, len(b)/width)
	for i := 0; i+width <= len(b); i += width {
		r := rune(b[i])
		for k := 1; k < width; k++ {
			r |= rune(b[i+k]) << (8 * k)
		}
		if utf16.IsSurrogate(r) {
			r = '\ufffd'
		}
		runes = append(runes, r)
	}
	return string(runes)
}

// eachItem visits the items of a dictionary.
func (py *python) eachItem(d uint64, visit func(key, value uint64)) bool {
	values := py.U64(d + dictVals)
	if values != 0 {
		values += py.l.dictValues
	}
	return py.eachKey(py.U64(d+dictKeys), values, visit)
}

// eachKey visits the items of a table of keys, whose values can be in a table of their own. It
// reports whether the table makes sense.
func (py *python) eachKey(keys, values uint64, visit func(key, value uint64)) bool {
	if !peek.Pointer(keys) {
		return false
	}
	entries, n, general, ok := py.keysOf(keys)
	if !ok {
		return false
	}
	size := uint64(16)
	if general {
		size = 24
	}
	for i := range n {
		e := entries + i*size
		if i%128 == 0 && (py.Page(e) == nil || py.late()) {
			return false
		}
		key, value := py.U64(e+size-16), uint64(0)
		if values != 0 {
			value = py.U64(values + 8*i)
		} else {
			value = py.U64(e + size - 8)
		}
		if value != 0 && key != 0 {
			visit(key, value)
		}
	}
	return true
}

// keysOf returns where the entries of a table of keys begin, how many there are, and whether they
// hold a hash, as those do whose keys are not all strings.
func (py *python) keysOf(keys uint64) (entries, n uint64, general, ok bool) {
	if py.l.minor <= 10 {
		size := py.U64(keys + 8)
		n = py.U64(keys + 32)
		index := uint64(1)
		switch {
		case size > 0xffffffff:
			index = 8
		case size > 0xffff:
			index = 4
		case size > 0xff:
			index = 2
		}
		return keys + 40 + size*index, n, true, size <= maxEntries*2 && n <= size
	}
	head := py.U64(keys + 8)
	log2, log2Bytes, kind := head&255, head>>8&255, head>>16&255
	n = py.U64(keys + 24)
	if log2 > 40 || log2Bytes > 44 || kind > 2 || n > 1<<log2 || n > maxEntries {
		return 0, 0, false, false
	}
	return keys + 32 + 1<<log2Bytes, n, kind == 0, true
}
