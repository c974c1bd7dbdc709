// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/vramprof/vramprof/tracer/holders/peek"
)

// wrapped makes an object of pybind11 that owns a C++ object of unknown class.
func (m *synthetic) wrapped(typ, value uint64) uint64 {
	const owned, simple = 1, 2
	a := m.collect(typ, 56)
	m.put(a+16, value)
	m.put(a+48, owned|simple)
	return a
}

// newWrapper makes a type of pybind11.
func (m *synthetic) newWrapper(name string) uint64 {
	base := m.newType("pybind11_builtins.pybind11_object", flagHeap|flagGC, 56)
	return m.newType(name, flagHeap|flagGC, 56, base)
}

// holderOf returns the holder of the storage of some pages, or "".
func holderOf(r *Result, pages uint64) string {
	for _, s := range r.Storages {
		if s.Bytes == pages<<12 {
			return s.Holder.String()
		}
	}
	return ""
}

// TestVectorsOfWrappedObjects: words left over from two vectors are none, though the first is the
// begin of a chunk that was as large once. The gradient lies between them, in a vector of the
// engine.
func TestVectorsOfWrappedObjects(t *testing.T) {
	m := newSynthetic()
	reducer, schema := m.newWrapper("torch._C._distributed_c10d.Reducer"), m.newWrapper("torch._C.FunctionSchema")
	_, bucket := m.newStorage(1)
	_, gradient := m.newStorage(2)
	buckets := m.puts(m.alloc(200), bucket, 0, 7)
	owner := m.puts(m.alloc(64), 5, 1, buckets, buckets+192, buckets+192)

	large := m.alloc(64) // now the first part of what was free
	m.puts(large+16, 0, 4096|1)
	former := large + 32
	m.puts(m.alloc(32), gradient)
	end, room := m.alloc(32), m.alloc(32)
	m.alloc(4096)
	leftOver := m.puts(m.alloc(120), 5, former, end, room)
	r := walkImage(t, m.finish(m.newStr("ddp"), m.wrapped(reducer, owner), m.newStr("schema"), m.wrapped(schema, leftOver),
		m.newStr("tensor"), m.newTensor(syntheticGPU, 4<<12)), Options{})
	if got := holderOf(r, 1); got != "ddp" {
		t.Errorf("a vector that fills its chunk: %q", got)
	}
	if got := holderOf(r, 2); got != "no holder found" {
		t.Errorf("a gradient between the words of two vectors: %q", got)
	}
}

// TestWordsOfWrappedObjects: a word left over has a holder only as far as the references that the
// tensor counts are not those of vectors elsewhere, or of other such words.
func TestWordsOfWrappedObjects(t *testing.T) {
	const none = "no holder found"
	for _, c := range []struct {
		name       string
		references uint64
		schemas    int  // wrapped objects with a word left over or in use
		first      bool // in front of all else, where free would have overwritten it
		engine     bool // a vector of the engine has the tensor
		freed      bool // which is free
		want       string
	}{
		{"a reference of the object", 1, 1, false, false, false, "schema0"},
		{"a vector of the engine has the reference", 1, 1, false, true, false, none},
		{"one reference each", 2, 1, false, true, false, "schema0"},
		{"a vector that is free has none", 1, 1, false, true, true, "schema0"},
		{"one of two objects", 1, 2, false, false, false, none},
		{"two objects", 2, 2, false, false, false, "schema0"},
		{"a vector of the object and one of the engine", 1, 1, true, true, false, none},
		{"a vector of the object is better than a word of another", 1, 2, true, false, false, "schema0"},
	} {
		m := newSynthetic()
		schema := m.newWrapper("torch._C.FunctionSchema")
		_, impl := m.newStorage(1)
		m.put(impl+8, c.references)
		main := []uint64{m.newStr("tensor"), m.newTensor(syntheticGPU, 4<<12)}
		for k := range c.schemas {
			block := m.puts(m.alloc(120), 5, 0, 0, 6, impl)
			if begin := m.alloc(32); c.first && k == 0 {
				m.puts(begin, impl)
				m.puts(block, 5, begin, begin+8, begin+16, 0)
			}
			main = append(main, m.newStr(fmt.Sprint("schema", k)), m.wrapped(schema, block))
		}
		if c.engine {
			buffer := m.puts(m.alloc(40), 0, impl)
			if c.freed {
				m.puts(buffer, 0x55550000f001, impl)
			}
		}
		m.alloc(64)
		if got := holderOf(walkImage(t, m.finish(main...), Options{}), 1); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestGuessesAndStacks: what a stack may have left over is worse evidence than a word of a wrapped
// object.
func TestGuessesAndStacks(t *testing.T) {
	for _, c := range []struct {
		cost int
		want RootKind
	}{{costOther, RootTemporary}, {costDoubtful, RootModule}} {
		m := newSynthetic()
		st, impl := m.newStorage(1)
		node, meta := m.puts(m.alloc(200), m.node, 1, 0, impl), m.alloc(112)
		loss := m.newTensor(syntheticGPU, 4<<12)
		m.put(m.get(loss+24)+24, m.puts(meta, m.meta))
		m.put(meta+48, node)
		begin := m.puts(m.alloc(32), impl)
		ddp := m.wrapped(m.newWrapper("torch._C._distributed_c10d.Reducer"), m.puts(m.alloc(64), 5, begin, begin+8, begin+8))
		m.alloc(64)
		copied := peek.NewCopy(m.finish(m.newStr("tensor"), m.newTensor(syntheticGPU, 4096)), DefaultMemory)
		defer copied.Close()
		py, err := newPython(context.Background(), copied)
		if err != nil {
			t.Fatal(err)
		}
		w := &walk{Options: Options{MaxObjects: DefaultObjects}, copy: copied, mem: copied.Memory(), result: &Result{}}
		w.plan(py)
		tensors, _ := py.collected(DefaultObjects)
		w.search.storages.calibrate(slices.DeleteFunc(tensors, func(a uint64) bool { return !w.search.isTensor(a) }))
		w.search.root(loss, Root{Kind: RootTemporary}, stepRoot, 0, c.cost)
		w.search.root(ddp, Root{Kind: RootModule, Name: "ddp"}, stepRoot, 0, costMain)
		if err := w.searchPaths(); err != nil {
			t.Fatal(err)
		}
		if got := newNamer(w.search, w.roots).holder(w.search.storages.known[st].holder).Root().Kind; got != c.want {
			t.Errorf("a temporary of cost %d: the root is %d, want %d", c.cost, got, c.want)
		}
	}
}
