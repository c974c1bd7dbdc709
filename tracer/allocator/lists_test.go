// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"
)

const (
	listTable = 512       // an asynchronous allocator's table, in the library's variables
	listUses  = 640       // an empty table of streams
	listMap   = 1024 + 64 // a map, in an object at 1024
	listNodes = 4096
	listSlots = 8192
)

// lists is memory with a table of the asynchronous allocator and a map of a pluggable one, with two
// blocks each.
func lists() flatMemory {
	m := make(flatMemory, 12<<10)
	put := func(at int, words ...uint64) {
		for i, w := range words {
			binary.LittleEndian.PutUint64(m[at+8*i:], w)
		}
	}
	at := func(o int) uint64 { return fuzzBase + uint64(o) }
	put(listTable, at(listSlots), 3, 4<<8, 2)
	for i := range 7 {
		m[listSlots+asyncSize*i] = 0xff
	}
	for i, address := range []uint64{0x7f0000000000, 0x7f0000000400} {
		e := listSlots + 2*i*asyncSize
		m[e] = 0
		put(e+8, address)
		put(e+asyncUses, at(listUses), 0, 3<<8, 0)
		put(e+asyncStream, 4096, uint64(i), uint64(1000+i))
	}
	put(listMap, at(listNodes), 5, at(listNodes+64), 2, 0x3f800000)
	put(listNodes, 0, at(listMap+mapFirst), 0, at(listNodes+64), 0) // buckets
	put(listNodes+64, at(listNodes+128), 0x7f0000000400, 7, 1, 64)
	put(listNodes+128, 0, 0x7f0000000000, 9, 0, 64)
	return m
}

// libraryOf returns a library whose variables are a memory.
func libraryOf(t testing.TB, m flatMemory) *library {
	t.Helper()
	l, err := newReader(m, 1<<20).findLibrary()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestListsOfOtherBackendsAreFoundByTheirCounts(t *testing.T) {
	l := libraryOf(t, lists())
	at, err := l.asyncTable()
	if blocks, ok := l.asyncBlocks(at); err != nil || at != fuzzBase+listTable || !ok || !slices.Equal(blocks, []Block{
		listed(0x7f0000000000, 1000, 0, 4096), listed(0x7f0000000400, 1001, 1, 4096)}) {
		t.Errorf("the asynchronous allocator: %#x, %v: %v, %+v", at, err, ok, blocks)
	}
	at, err = l.pluggableMap(fuzzBase + 1024)
	if blocks, ok := l.mapBlocks(at); err != nil || at != fuzzBase+listMap || !ok || !slices.Equal(blocks, []Block{
		listed(0x7f0000000000, 9, 0, 64), listed(0x7f0000000400, 7, 1, 64)}) {
		t.Errorf("a pluggable allocator: %#x, %v: %v, %+v", at, err, ok, blocks)
	}
}

func TestListsWithAnotherCountAreNone(t *testing.T) {
	for name, damage := range map[string]func(m flatMemory){
		"counts":     func(m flatMemory) { m[listTable+24]++; m[listMap+24]++ },
		"no size":    func(m flatMemory) { clear(m[listSlots+asyncBytes:][:8]); clear(m[listNodes+64+16:][:8]) },
		"no address": func(m flatMemory) { clear(m[listSlots+8:][:8]); clear(m[listNodes+64+8:][:8]) },
		"a cycle": func(m flatMemory) {
			m[listTable+24] = 3
			m[listMap+24] = 3
			copy(m[listNodes+128:], m[listMap+mapFirst:][:8])
		},
	} {
		m := lists()
		damage(m)
		l := libraryOf(t, m)
		var e *Error
		if at, err := l.asyncTable(); !errors.As(err, &e) {
			t.Errorf("%s: a table at %#x, %v", name, at, err)
		}
		if at, err := l.pluggableMap(fuzzBase + 1024); !errors.As(err, &e) {
			t.Errorf("%s: a map at %#x, %v", name, at, err)
		}
	}
}

func FuzzLists(f *testing.F) {
	f.Add([]byte{0, 2, 1})
	f.Fuzz(func(t *testing.T, changes []byte) {
		m := lists()
		for ; len(changes) >= 3; changes = changes[3:] {
			m[int(binary.LittleEndian.Uint16(changes))%len(m)] = changes[2]
		}
		l := libraryOf(t, m)
		l.asyncTable()
		l.pluggableMap(fuzzBase + 1024)
		for _, read := range []func(uint64) ([]Block, bool){l.asyncBlocks, l.mapBlocks} {
			for _, at := range []uint64{fuzzBase + listTable, fuzzBase + listMap} {
				if blocks, ok := read(at); ok && len(blocks) > len(m)/mapNode {
					t.Errorf("%d blocks", len(blocks))
				}
			}
		}
		l.searchObject()
		if l.cost.Bytes > 1<<20 {
			t.Errorf("%d bytes", l.cost.Bytes)
		}
	})
}
