// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"testing"
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
// begin of a chunk that was as large once. The gradient lies between them, in a vector of the engine.
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
