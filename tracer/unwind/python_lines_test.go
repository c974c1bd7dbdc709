// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"encoding/hex"
	"os"
	"slices"
	"testing"
	"time"
	"unsafe"

	"go.opentelemetry.io/ebpf-profiler/support"
)

// run is a line (0: none) and its number of consecutive instructions.
type run struct{ line, instructions int }

// CPython 3.10.13 compiled the tables, and its co_lines returned the runs.
var lineTables = []struct {
	name  string
	first int32
	table string
	runs  []run
}{
	{"loops, try and comprehension", 2, "0202020104ff0202020108ff02020a0114020a01060106ff0402",
		[]run{{4, 1}, {5, 1}, {4, 2}, {6, 1}, {7, 1}, {6, 4}, {8, 1}, {9, 5}, {11, 10}, {12, 5}, {13, 3}, {12, 3}, {14, 2}}},
	{"more than 254 bytes of code and 127 lines", 1, "040104010401007f007ffe2ffe00d400060102010601040106ff007f024c008102b6",
		[]run{{2, 2}, {3, 2}, {4, 2}, {305, 360}, {306, 3}, {307, 1}, {308, 3}, {309, 2}, {308, 3}, {511, 1}, {310, 1}}},
	{"with", 19, "0a01020122ff", []run{{20, 5}, {21, 1}, {20, 17}}},
	{"jumps back", 22, "040108010201080104fd04050201020104ff",
		[]run{{23, 2}, {24, 4}, {25, 1}, {26, 4}, {23, 2}, {28, 2}, {29, 1}, {30, 1}, {29, 2}}},
	{"code of no line", 5, "0401048004ff", []run{{6, 2}, {0, 2}, {5, 2}}},
}

func TestLinesEqualThoseOfPython310(t *testing.T) {
	for _, c := range lineTables {
		table, err := hex.DecodeString(c.table)
		if err != nil {
			t.Fatal(err)
		}
		at := int32(0)
		for _, r := range c.runs {
			for range r.instructions {
				if got := lineOf310(table, c.first, at); got != r.line {
					t.Errorf("%s: instruction %d is of line %d, want %d", c.name, at, got, r.line)
				}
				at++
			}
		}
		if got := lineOf310(table, c.first, at); got != 0 {
			t.Errorf("%s: line %d behind the end, want none", c.name, got)
		}
		if got := lineOf310(table, c.first, -1); got != int(c.first) {
			t.Errorf("%s: line %d before the first instruction, want %d", c.name, got, c.first)
		}
	}
}

// onHeap keeps memory that is read by address off the stack, which can move.
var onHeap [][]uint64

// codeObject builds a code object and its line table in our own memory.
func codeObject(first uint32, table []byte) (code, bytes []uint64) {
	bytes = make([]uint64, (bytesData+len(table))/8+1)
	bytes[bytesSize/8] = uint64(len(table))
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&bytes[bytesData/8])), len(table)), table)
	code = make([]uint64, codeHead/8)
	code[layout310.firstLine/8] = uint64(first)
	code[layout310.lineTable/8] = uint64(uintptr(unsafe.Pointer(&bytes[0])))
	onHeap = append(onHeap, code, bytes)
	return code, bytes
}

func TestCodeObjectsAreReadFromTheProcess(t *testing.T) {
	want := []byte{4, 1, 4, 1}
	code, bytes := codeObject(7, want)
	address := uint64(uintptr(unsafe.Pointer(&code[0])))
	read := func(sum uint32, address uint64) (*codeLines, error) {
		return readCode(&memory{pid: uint32(os.Getpid())}, codeKey{0, sum, address}, &layout310, nil)
	}
	if c, err := read(7, address); err != nil || c.first != 7 || !slices.Equal(c.table, want) {
		t.Errorf("got %v, %v, want 7, %v", c, err, want)
	}
	if _, err := read(8, address); err == nil {
		t.Error("a code object with another checksum was accepted")
	}
	for _, size := range []uint64{1 << 40, maxLineTable + 1, ^uint64(0)} {
		bytes[bytesSize/8] = size
		if _, err := read(7, address); err == nil {
			t.Errorf("a line table of %d bytes was read", size)
		}
	}
	code[layout310.lineTable/8] = 1
	if _, err := read(7, address); err == nil {
		t.Error("a line table at address 1 was read")
	}
	if _, err := read(7, ^uint64(0)-8); err == nil {
		t.Error("a code object at the end of the address space was read")
	}
}

func TestLinesOfAFreedCodeObjectAreCached(t *testing.T) {
	code, _ := codeObject(7, []byte{4, 1, 4, 1})
	key := codeKey{uint32(os.Getpid()), 7, uint64(uintptr(unsafe.Pointer(&code[0])))}
	var l lineCache
	var m memories
	if c := l.of(&m, key, &layout310); c == nil || lineOf310(c.table, c.first, 2) != 9 {
		t.Fatalf("lines %v, want 9 for instruction 2", c)
	}
	l.tables.young[key].read = time.Time{}
	code[layout310.firstLine/8] = 8 // no longer matches the checksum
	if c := l.of(&m, key, &layout310); c == nil || lineOf310(c.table, c.first, 0) != 8 {
		t.Errorf("lines %v of what is gone, want 8 for instruction 0", c)
	}
	key.sum = 9
	if c := l.of(&m, key, &layout310); c != nil {
		t.Errorf("lines %v of what was never read, want none", c)
	}
}

func TestANewCodeObjectAtTheSameAddressHasItsOwnLines(t *testing.T) {
	code, _ := codeObject(7, []byte{4, 1, 4, 1})
	key := codeKey{uint32(os.Getpid()), 7, uint64(uintptr(unsafe.Pointer(&code[0])))}
	var l lineCache
	var m memories
	l.of(&m, key, &layout310).read = time.Time{}
	_, others := codeObject(7, []byte{4, 3, 4, 1})
	code[layout310.lineTable/8] = uint64(uintptr(unsafe.Pointer(&others[0])))
	if c := l.of(&m, key, &layout310); c == nil || lineOf310(c.table, c.first, 0) != 10 {
		t.Errorf("lines %v, want 10 for instruction 0", c)
	}
}

func TestCachedLineTablesAreLimited(t *testing.T) {
	var l lineCache
	var m memories
	code, _ := codeObject(7, make([]byte, maxLineTable))
	for i := range 64 {
		code[layout310.firstLine/8] = uint64(i)
		l.of(&m, codeKey{uint32(os.Getpid()), uint32(i), uint64(uintptr(unsafe.Pointer(&code[0])))}, &layout310)
		if n := len(l.tables.young) + len(l.tables.old); l.size > maxTables/2 || n > maxTables/maxLineTable {
			t.Fatalf("%d bytes of %d tables are remembered, want at most %d", l.size, n, maxTables)
		}
	}
}

func FuzzLineOf310(f *testing.F) {
	for _, c := range lineTables {
		table, _ := hex.DecodeString(c.table)
		f.Add(table, c.first, int32(3))
	}
	f.Fuzz(func(t *testing.T, table []byte, first, instruction int32) {
		if line := lineOf310(table, first, instruction); line < 0 || line > 1<<31-1 {
			t.Errorf("line %d", line)
		}
	})
}

// CPython 3.11 and 3.14 compiled the tables, and their co_lines returned the runs.
var tables311 = []struct {
	name  string
	first int32
	table string
	runs  []run
}{
	{"closure 3.11", 2, "f8f88000f002010511f000010511f000010511f000010511f000010511f00408050ed80d0ef000030913f000030913d813189035d81011d81011f105021413f400021413f003030913f000030913f000030913f000030913f100030913f400030913f000030913f00e000d0e88018801f00f030913f000030913f000030913f000030913f8f8f8f000030913f000030913f000030913f000030913f000030913f8f508000c16f00001050ef00001050ef00001050ed8080df8f8f8f8f00301050ef8f8f8f009030913f00e000d0e88018801f8884188018805880588058805d80b1fd00b1fd00b1fd00b1f9851d00b1fd10b1fd40b1fd0041f",
		[]run{{0, 2}, {2, 1}, {3, 5}, {5, 1}, {6, 3}, {7, 2}, {8, 1}, {9, 1}, {7, 7}, {6, 12}, {13, 3}, {6, 4}, {0, 3}, {6, 5}, {0, 1}, {10, 9}, {11, 1}, {0, 4}, {10, 1}, {0, 3}, {6, 1}, {13, 3}, {0, 1}, {13, 6}, {14, 14}}},
	{"closure.<locals>.inner 3.11", 3, "f88000d80f108808",
		[]run{{0, 1}, {3, 1}, {4, 2}}},
	{"far 3.11", 19, "8000d81213f5480400070a81658465f049044402120df00044020b0d",
		[]run{{19, 1}, {20, 1}, {152, 13}, {20, 2}}},
	{"Body 3.11", 153, "80008000800080008000d8081dd0081d90459045982191489448d0081dd1081dd4081d804180418041",
		[]run{{153, 5}, {154, 23}}},
	{"Body.<listcomp> 3.11", 154, "8000d0081dd0081dd0081d88718811d0081dd0081dd0081d",
		[]run{{154, 9}}},
	{"closure 3.14", 2, "f88000f502010511f00408050edf0d0e8a51d91318d81011d81011f305021413f703000e0f8951f00e000d0e8901f70f000e0f8f51fbf408000c16f40001050ed8080dfbf00301050efaf009000e0ff00e000d0e8901f888418901fad91d1ed30b1f9951980188458e479951d10b1fd0041ff9d20b1f",
		[]run{{0, 1}, {2, 1}, {3, 6}, {5, 1}, {6, 11}, {7, 2}, {8, 1}, {9, 1}, {7, 4}, {6, 10}, {13, 3}, {6, 16}, {0, 4}, {10, 10}, {11, 1}, {0, 4}, {10, 1}, {0, 3}, {6, 1}, {13, 3}, {0, 1}, {13, 3}, {0, 3}, {14, 22}, {0, 2}, {14, 3}}},
	{"closure.<locals>.inner 3.14", 3, "f88000d80f108808",
		[]run{{0, 1}, {3, 1}, {4, 2}}},
}

func TestLinesEqualThoseOfPython311AndLater(t *testing.T) {
	for _, c := range tables311 {
		table, err := hex.DecodeString(c.table)
		if err != nil {
			t.Fatal(err)
		}
		at := int32(0)
		for _, r := range c.runs {
			for range r.instructions {
				if got := lineOf311(table, c.first, at); got != r.line {
					t.Errorf("%s: instruction %d is of line %d, want %d", c.name, at, got, r.line)
				}
				at++
			}
		}
		if got := lineOf311(table, c.first, at); got != 0 {
			t.Errorf("%s: line %d behind the end, want none", c.name, got)
		}
	}
}

func TestLayoutsOfOtherBuildsAreLeftToTheProfiler(t *testing.T) {
	for _, c := range []struct {
		version uint16
		first   uint8
		known   bool
	}{{0x0309, 40, false}, {0x030a, 40, true}, {0x030b, 72, true}, {0x030b, 68, false}, {0x030c, 68, true}, {0x030d, 68, true}, {0x030e, 68, true}, {0x030d, 84, false}} {
		if _, known := layoutOf(&support.PyProcInfo{Version: c.version, PyCodeObject_co_firstlineno: c.first}); known != c.known {
			t.Errorf("version %#x with its first line at %d: known is %v", c.version, c.first, known)
		}
	}
}

func FuzzLineOf311(f *testing.F) {
	for _, c := range tables311 {
		table, _ := hex.DecodeString(c.table)
		f.Add(table, c.first, int32(3))
	}
	f.Fuzz(func(t *testing.T, table []byte, first, instruction int32) {
		if line := lineOf311(table, first, instruction); line < 0 || line > 1<<31-1 {
			t.Errorf("line %d", line)
		}
	})
}
