// SPDX-License-Identifier: Apache-2.0

// Package pickle writes and reads values of Python's builtin types as Python's module pickle does.
// It runs nothing: a pickle that names a class or a function is an error.
package pickle

// Opcodes of protocols 2 to 5 for builtin types.
const (
	opProto = 0x80
	opFrame = 0x95
	opStop  = '.'
	opMark  = '('
	opPop   = '0'
	opDup   = '2'

	opPopMark = '1'

	opNone     = 'N'
	opNewTrue  = 0x88
	opNewFalse = 0x89
	opBinInt   = 'J' // four bytes, signed
	opBinInt1  = 'K'
	opBinInt2  = 'M'
	opLong1    = 0x8a
	opLong4    = 0x8b
	opBinFloat = 'G'

	opShortBinUnicode = 0x8c
	opBinUnicode      = 'X'
	opBinUnicode8     = 0x8d
	opShortBinBytes   = 'C'
	opBinBytes        = 'B'
	opBinBytes8       = 0x8e
	opByteArray8      = 0x96
	opShortBinString  = 'U'
	opBinString       = 'T'

	opEmptyList  = ']'
	opAppend     = 'a'
	opAppends    = 'e'
	opList       = 'l'
	opEmptyTuple = ')'
	opTuple      = 't'
	opTuple1     = 0x85
	opTuple2     = 0x86
	opTuple3     = 0x87
	opEmptySet   = 0x8f
	opAddItems   = 0x90
	opFrozenSet  = 0x91
	opEmptyDict  = '}'
	opDict       = 'd'
	opSetItem    = 's'
	opSetItems   = 'u'

	opBinPut     = 'q'
	opLongBinPut = 'r'
	opBinGet     = 'h' // by a number of one byte
	opLongBinGet = 'j'
	opMemoize    = 0x94
)
