// SPDX-License-Identifier: Apache-2.0

package holders

// layout is where the fields of CPython's objects lie, for a 64-bit release build with the GIL.
// Fields of objects are part of a minor version's ABI. What is not (the runtime, the interpreter,
// the collector) comes from the debug offsets or is searched.
type layout struct {
	minor int // of Python 3

	// Functions.
	fnCode, fnGlobals, fnDefaults, fnKwdefaults, fnClosure, fnDict uint64

	// Code. Until 3.10 the names of variables are in three tuples.
	coFile, coName, coFirstLine, coNames, coStackSize uint64
	coCells, coFree                                   uint64

	// Frames: objects until 3.10, structures on a stack of the thread since 3.11.
	tsFrame                                                    uint64 // in a thread's state
	cframe                                                     uint64 // the frame in what tsFrame points to; only where hasCframe
	hasCframe                                                  bool
	frPrevious, frCode, frGlobals, frNames, frOwner, frLocals  uint64
	frStackTop                                                 uint64
	genFrame, genState                                         uint64
	dictValues                                                 uint64 // the first value in a table of split values
	cachedKeys                                                 uint64 // in a heap type
	tupleItems                                                 uint64 // behind the hash, since 3.14
	asciiSize, compactSize                                     uint64 // where the characters begin
	threadsHead, interpNext, interpHead, gcState, modulesField uint64 // by debug offsets, or 0
	sysDict                                                    uint64
}

// layoutOf returns the layout of a minor version, and whether there is one.
func layoutOf(minor int) (layout, bool) {
	l := layout{
		minor: minor, fnCode: 48, fnGlobals: 16, fnDefaults: 56, fnKwdefaults: 64, fnClosure: 72, fnDict: 88,
		coFile: 112, coName: 128, coFirstLine: 68, coNames: 96, coStackSize: 64,
		frPrevious: 8, frCode: 0, frGlobals: 24, frNames: 40, frOwner: 70, frStackTop: 64, frLocals: 72,
		genFrame: 72, genState: 67, dictValues: 8, cachedKeys: 880, asciiSize: 40, compactSize: 56,
		tsFrame: 72, tupleItems: 24,
	}
	switch minor {
	case 14:
		l.frOwner, l.frLocals, l.tupleItems = 74, 80, 32
	case 13:
	case 12:
		l.dictValues, l.tsFrame, l.cframe, l.hasCframe = 0, 56, 0, true
	case 11:
		l.dictValues, l.tsFrame, l.cframe, l.hasCframe = 0, 56, 8, true
		l.coStackSize = 68
		l.coFirstLine, l.cachedKeys, l.asciiSize, l.compactSize = 72, 872, 48, 72
		l.frPrevious, l.frCode, l.frGlobals, l.frNames, l.frOwner = 48, 32, 8, 24, 69
		l.genFrame, l.genState = 80, 75
	case 8, 9, 10:
		l.dictValues, l.tsFrame = 0, 24
		l.cachedKeys, l.asciiSize, l.compactSize = 0, 48, 72
		l.coFile, l.coName, l.coFirstLine, l.coNames, l.coFree, l.coCells = 104, 112, 40, 72, 80, 88
		l.frPrevious, l.frCode, l.frGlobals, l.frNames, l.frLocals = 24, 32, 48, 56, 360
		l.genFrame, l.coStackSize = 16, 32
		if minor == 10 {
			l.frLocals = 352
		} else {
			l.fnCode, l.fnGlobals, l.fnDefaults, l.fnKwdefaults, l.fnClosure, l.fnDict = 16, 24, 32, 40, 48, 72
		}
	default:
		return layout{}, false
	}
	return l, true
}

// frameObjects reports whether frames are Python objects.
func (l layout) frameObjects() bool { return l.minor <= 10 }

// exceptionFields returns the fields of BaseException, which have no documented offsets.
func (l layout) exceptionFields() []member {
	at := uint64(40) // behind __notes__
	if l.minor <= 10 {
		at = 32
	}
	return []member{{"args", 24}, {"__traceback__", at}, {"__context__", at + 8}, {"__cause__", at + 16}}
}

// Offsets that all of 3.8 to 3.14 share.
const (
	obType      = 8
	obSize      = 16
	tpName      = 24
	tpBasicSize = 32
	tpItemSize  = 40
	tpFlags     = 168
	tpWeakList  = 208
	tpMembers   = 240
	tpDict      = 264
	tpDictOff   = 288
	tpMRO       = 344
	dictKeys    = 32
	dictVals    = 40
	listItems   = 24
	setMask     = 32
	setTable    = 40
	moduleDict  = 16
	cellValue   = 16
	methodFunc  = 16
	methodSelf  = 24
	strLength   = 16
	strState    = 32
	frameData   = 24 // of a frame object, since 3.11
	frameBack   = 16 // of a frame object, since 3.11
	weakObject  = 16
	tbNext      = 16
	tbFrame     = 24
)

// Flags of a type.
const (
	flagInline  = 1 << 2 // values lie behind the object, since 3.13
	flagManaged = 1 << 4 // the dictionary is in front of the object, since 3.11
	flagHeap    = 1 << 9
	flagReady   = 1 << 12
	flagGC      = 1 << 14
	flagInt     = 1 << 24
	flagList    = 1 << 25
	flagTuple   = 1 << 26
	flagBytes   = 1 << 27
	flagStr     = 1 << 28
	flagDict    = 1 << 29
	flagError   = 1 << 30
	flagType    = 1 << 31
)

// member is a field of a C structure or a slot that holds an object.
type member struct {
	name   string
	offset uint64
}
