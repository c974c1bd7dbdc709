// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"encoding/hex"
	"os"
	"runtime"
	"slices"
	"testing"
	"unsafe"
)

// run is a line (0: none) and how many instructions in a row have it.
type run struct{ line, instructions int }

// The tables are what CPython 3.10.13 compiled, the runs what its co_lines says of them.
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

// onHeap keeps what is read by address off the stack, which moves.
var onHeap [][]uint64

// codeObject lays out a code object and its line table in our own memory.
func codeObject(first uint32, table []byte) (code, bytes []uint64) {
	bytes = make([]uint64, (bytesData+len(table))/8+1)
	bytes[bytesSize/8] = uint64(len(table))
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&bytes[bytesData/8])), len(table)), table)
	code = make([]uint64, codeHead/8)
	code[codeFirstLine/8] = uint64(first)
	code[codeLineTable/8] = uint64(uintptr(unsafe.Pointer(&bytes[0])))
	onHeap = append(onHeap, code, bytes)
	return code, bytes
}

func TestCodeObjectsAreReadFromTheProcess(t *testing.T) {
	pid := &memory{pid: uint32(os.Getpid())}
	want := []byte{4, 1, 4, 1}
	code, bytes := codeObject(7, want)
	address := uint64(uintptr(unsafe.Pointer(&code[0])))
	first, table, err := readCode310(pid, address, 7)
	if err != nil || first != 7 || !slices.Equal(table, want) {
		t.Errorf("got %d, %v, %v, want 7, %v", first, table, err, want)
	}
	if _, _, err := readCode310(pid, address, 8); err == nil {
		t.Error("a code object with another checksum was taken")
	}
	for _, size := range []uint64{1 << 40, maxLineTable + 1, ^uint64(0)} {
		bytes[bytesSize/8] = size
		if _, _, err := readCode310(pid, address, 7); err == nil {
			t.Errorf("a line table of %d bytes was read", size)
		}
	}
	code[codeLineTable/8] = 1
	if _, _, err := readCode310(pid, address, 7); err == nil {
		t.Error("a line table at address 1 was read")
	}
	if _, _, err := readCode310(pid, ^uint64(0)-8, 7); err == nil {
		t.Error("a code object at the end of the address space was read")
	}
}

func TestLinesOfAProcessThatIsGoneAreRemembered(t *testing.T) {
	code, bytes := codeObject(7, []byte{4, 1, 4, 1})
	p := codePoint{uint32(os.Getpid()), uint64(uintptr(unsafe.Pointer(&code[0]))), 7 | 2<<32}
	u := Unwinder{memories: map[uint32]*memory{}}
	if got := u.line310(p); got != 9 {
		t.Fatalf("line %d, want 9", got)
	}
	code[codeFirstLine/8] = 8 // no longer what the checksum says
	if got := u.line310(p); got != 9 {
		t.Errorf("line %d of what is gone, want 9", got)
	}
	p.at = 7 | 0<<32
	if got := u.line310(p); got != 0 {
		t.Errorf("line %d of what was never read, want 0", got)
	}
	runtime.KeepAlive(bytes)
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
