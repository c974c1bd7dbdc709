// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"path"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/holders/peek"
)

const (
	maxThreads   = 4096
	maxFrames    = 4096 // of one thread
	maxVariables = 8192 // of one frame
	maxStack     = 64   // values of a stack whose end is not known
	frameTries   = 12
	wholeChains  = 3 // that are read of each thread
	ownedByC     = 3 // of a frame that only marks where C called Python, since 3.12
)

// variable is a local variable of a frame.
type variable struct {
	name     uint64 // a string object; 0 for a value on the frame's stack
	value    uint64
	doubtful bool // on a part of the stack that can be out of use
}

// frame is a function that has been entered, or a generator that waits.
type frame struct {
	function, file string
	line           uint32 // where the function begins
	now            int    // the line that it executes; 0: unknown
	library        bool   // of Python itself or of an installed package
	variables      []variable
	globals        uint64
	names          uint64 // the dictionary of locals(), of a class's body
	code           uint64
	cut            bool // the functions that called this one are not known
}

// proper reports whether a chain begins where a thread does: at a module's code (of a program, or
// of what runs it), or where package threading begins.
func proper(frames []*frame) bool {
	if len(frames) == 0 {
		return false
	}
	switch frames[len(frames)-1].function {
	case "<module>", "_run_module_as_main", "Thread._bootstrap", "_bootstrap":
		return true
	}
	return false
}

// markCut marks the frames of chains that were cut off while they were read, where the thread has
// others that were not.
func markCut(chains [][]*frame) {
	if !slices.ContainsFunc(chains, proper) {
		return
	}
	for _, c := range chains {
		if !proper(c) {
			for _, f := range c {
				f.cut = true
			}
		}
	}
}

// frameAt reads a frame. It is nil where there is none.
func (py *python) frameAt(f uint64) *frame {
	code := py.U64(f+py.l.frCode) &^ 3
	if t := py.typeOf(code); t == nil || t.name != "code" {
		return nil
	}
	r := &frame{
		function: py.str(py.U64(code + py.l.coName)), file: py.str(py.U64(code + py.l.coFile)), line: py.U32(code + py.l.coFirstLine),
		globals: py.U64(f + py.l.frGlobals), names: py.U64(f + py.l.frNames), code: code,
	}
	r.library, r.now = isLibrary(r.file), py.lineNow(f, code, r.line)
	names, ok := py.variableNames(code)
	if !ok {
		return nil
	}
	at := f + py.l.frLocals
	for i, name := range names {
		if v := py.U64(at+8*uint64(i)) &^ 3; v != 0 {
			r.variables = append(r.variables, variable{name: name, value: py.inCell(v)})
		}
	}
	py.temporaries(r, f, uint64(len(names)))
	return r
}

// inCell returns what a variable is that an inner function also uses.
func (py *python) inCell(v uint64) uint64 {
	if t := py.typeOf(v); t != nil && t.kind == kindCell {
		if value := py.U64(v + cellValue); value != 0 {
			return value
		}
	}
	return v
}

// isLibrary reports whether a file is Python's own or an installed package's.
func isLibrary(file string) bool {
	return strings.Contains(file, "/lib/python") || isInstalled(file) || strings.HasPrefix(file, "<frozen")
}

func isInstalled(file string) bool {
	return strings.Contains(file, "/site-packages/") || strings.Contains(file, "/dist-packages/")
}

// variableNames returns the names of a code's variables, in the order of a frame's slots.
func (py *python) variableNames(code uint64) ([]uint64, bool) {
	fields := []uint64{py.l.coNames}
	if py.l.frameObjects() {
		fields = []uint64{py.l.coNames, py.l.coCells, py.l.coFree}
	}
	var names []uint64
	for _, field := range fields {
		tuple := py.U64(code + field)
		if t := py.typeOf(tuple); t == nil || t.kind != kindTuple {
			return nil, false
		}
		n := py.U64(tuple + obSize)
		if n > maxVariables {
			return nil, false
		}
		for i := range n {
			names = append(names, py.U64(tuple+py.l.tupleItems+8*i))
		}
	}
	return names, true
}

// temporaries adds what a frame has on its stack, such as the list that a loop goes through.
func (py *python) temporaries(r *frame, f, variables uint64) {
	at, doubtful := f+py.l.frLocals+8*variables, false
	n := uint64(0)
	switch top := py.U64(f + py.l.frStackTop); {
	case py.l.frameObjects():
	case py.l.minor >= 14:
		if top > at && top-at < 8*maxVariables {
			n = (top - at) / 8
		}
	default:
		if top = uint64(uint32(top)); top > variables && top < maxVariables {
			n = top - variables
		}
	}
	if n == 0 { // a function that runs keeps the end of its stack to itself
		n, doubtful = min(uint64(py.U32(r.code+py.l.coStackSize)), maxStack), true
	}
	for i := range n {
		v := py.U64(at+8*i) &^ 3
		if py.typeOf(v) != nil && py.U32(v) != 0 {
			r.variables = append(r.variables, variable{value: v, doubtful: doubtful})
		}
	}
}

// threads returns the states of an interpreter's threads.
func (py *python) threads(interp uint64) (threads []uint64) {
	if !py.isThread(py.U64(interp+py.l.threadsHead), interp) {
		py.l.threadsHead = 0
		for i := uint64(0); i < 2048; i++ {
			if t := py.U64(interp + 8*i); py.isThread(t, interp) && py.U64(t) == 0 {
				py.l.threadsHead = 8 * i
				break
			}
		}
	}
	for t := py.U64(interp + py.l.threadsHead); py.isThread(t, interp) && len(threads) < maxThreads; t = py.U64(t + 8) {
		threads = append(threads, t)
	}
	return threads
}

func (py *python) isThread(t, interp uint64) bool { return peek.Pointer(t) && py.U64(t+16) == interp }

// chain reads the frames of a thread, innermost first, and reports whether it got to their end.
func (py *python) chain(thread uint64) (frames []*frame, whole bool) {
	f := py.U64(thread + py.l.tsFrame)
	if py.l.hasCframe && f != 0 {
		f = py.U64(f + py.l.cframe)
	}
	for range maxFrames {
		if f == 0 {
			return frames, true
		}
		if !peek.Pointer(f) || py.late() {
			return frames, false
		}
		if r := py.frameAt(f); r != nil {
			if !py.isInterpreters(f, r.code) {
				frames = append(frames, r)
			}
		} else if py.l.minor < 12 || py.U8(f+py.l.frOwner) < ownedByC {
			return frames, false
		}
		f = py.U64(f + py.l.frPrevious)
	}
	return frames, false
}

// isInterpreters reports whether a frame is the interpreter's own: CPython 3.12 marks with one
// where C called Python, and later ones too where they have specialized the call of a class, below
// the frame of __init__. The flags of its code are those of no function.
func (py *python) isInterpreters(f, code uint64) bool {
	const flags, optimized, newLocals = 48, 1, 2
	return py.l.minor >= 12 && (py.U8(f+py.l.frOwner) >= ownedByC || py.U32(code+flags)&(optimized|newLocals) == optimized)
}

// chains returns the frames of all threads of an interpreter, outermost first: those of the copy,
// and those of the process now. Frames come and go while they are read, and a chain can seem to end
// early: each thread is read until some chains came to an end, and all of these count.
func (py *python) chains(interp uint64, live peek.Memory) (chains [][]*frame, broken int) {
	all := map[uint64][][]*frame{} // by thread, innermost frames first
	for _, t := range py.threads(interp) {
		c, whole := py.chain(t)
		all[t] = append(all[t], c)
		if !whole {
			broken++
		}
	}
	if live != nil {
		broken = py.readAgain(all, interp, live)
	}
	for _, of := range all {
		markCut(of)
		for _, c := range of {
			chains = append(chains, outermostFirst(c))
		}
	}
	slices.SortStableFunc(chains, func(a, b []*frame) int { return len(b) - len(a) })
	return chains, broken
}

// readAgain adds chains of the process as it is now. It returns how many threads never came to an
// end.
func (py *python) readAgain(all map[uint64][][]*frame, interp uint64, live peek.Memory) (broken int) {
	whole, ended := map[uint64]int{}, map[uint64]bool{}
	for range frameTries {
		now := py.fresh(live)
		threads := now.threads(interp)
		again := len(threads) == 0
		broken = 0
		for _, t := range threads {
			if whole[t] < wholeChains {
				c, ok := now.chain(t)
				all[t] = append(all[t], c)
				if ended[t] = ended[t] || ok; ok && (proper(c) || len(c) == 0) {
					whole[t]++
				}
				again = true
			}
			if !ended[t] {
				broken++
			}
		}
		now.Close()
		if !again || py.late() {
			break
		}
	}
	return broken
}

func outermostFirst(frames []*frame) []*frame {
	r := make([]*frame, 0, len(frames))
	for i := len(frames) - 1; i >= 0; i-- {
		r = append(r, frames[i])
	}
	return r
}

// fresh returns a reader of the same Python that has nothing cached but types.
func (py *python) fresh(live peek.Memory) *python {
	now := *py
	now.Copy = peek.NewCopy(live, 64<<20)
	return &now
}

// place returns "train.py" and a function's name as a person may read them.
func (f *frame) place() (function, file string) {
	return cut60(untrusted.Clean(f.function)), cut60(untrusted.Clean(path.Base(f.file)))
}

const (
	frInstr      = 56      // of a frame since 3.11: its instruction
	coLineTable  = 136     // of code since 3.11
	bytesData    = 32      // of a bytes object
	maxLineTable = 1 << 18 // bytes
	codeUnit     = 2       // bytes of an instruction without an argument
)

// lineNow returns the line that a frame executes, or 0 if it is unknown: before 3.11, and where the
// instruction is not in the frame's code.
func (py *python) lineNow(f, code uint64, first uint32) int {
	t := py.typeOf(code)
	if py.l.frameObjects() || t == nil || t.item != codeUnit {
		return 0
	}
	begin, units := code+t.basic, py.U64(code+obSize) // instructions are the last field of code
	at := py.U64(f + frInstr)
	if at < begin || (at-begin)/codeUnit >= units || (at-begin)%codeUnit != 0 {
		return 0
	}
	table := py.U64(code + coLineTable)
	n := py.U64(table + obSize)
	if b := py.typeOf(table); b == nil || b.flags&flagBytes == 0 || n > maxLineTable {
		return 0
	}
	text := make([]byte, n)
	if !py.Read(text, table+bytesData) {
		return 0
	}
	return lineOf(text, int64(first), (at-begin)/codeUnit)
}

// lineOf returns the line of an instruction, counted in units, as the table of locations of CPython
// 3.11 and later says; 0 if it says none.
func lineOf(table []byte, line int64, unit uint64) int {
	const noColumns, long, none = 13, 14, 15
	for end := uint64(0); len(table) > 0; {
		head := table[0]
		if head&0x80 == 0 { // not the begin of an entry
			return 0
		}
		table = table[1:]
		kind, delta, skip := head>>3&15, int64(0), 0
		switch {
		case kind < 10:
			skip = 1
		case kind < noColumns:
			delta, skip = int64(kind-10), 2
		case kind != none:
			delta, table = signed(table)
		}
		if kind == long {
			for range 3 { // the last line, and both columns
				_, table = varint(table)
			}
		}
		if skip > len(table) {
			return 0
		}
		table = table[skip:]
		line += delta
		end += uint64(head&7) + 1
		if unit < end {
			if kind == none || line <= 0 || line > 1<<30 {
				return 0
			}
			return int(line)
		}
	}
	return 0
}

// varint reads a number in pieces of 6 bits, the lowest first. More than 30 bits make it wrong, and
// nothing worse.
func varint(table []byte) (n uint64, rest []byte) {
	for i, b := range table {
		if b&0x80 != 0 { // the next entry
			return n, table[i:]
		}
		if i < 5 {
			n |= uint64(b&0x3f) << (6 * i)
		}
		if b&0x40 == 0 {
			return n, table[i+1:]
		}
	}
	return n, nil
}

// signed reads a number whose lowest bit is its sign.
func signed(table []byte) (int64, []byte) {
	n, rest := varint(table)
	if n&1 == 1 {
		return -int64(n >> 1), rest
	}
	return int64(n >> 1), rest
}
