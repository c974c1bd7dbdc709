// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"testing"

	"github.com/vramprof/vramprof/tracer/holders/peek"
)

// synthetic builds the memory of a Python 3.13 with tensors, as small or as large as a test wants.
type synthetic struct {
	peek.Image
	next, lib                                                uint64 // where the next object goes; the next of the library
	object, typ, dict, list, tuple, str, module, tensor, own uint64 // types
	tracked                                                  []uint64
	tensorImpl, storageImpl, meta, node                      uint64 // vtables
}

const (
	syntheticHeap = 0x7f0000000000
	syntheticLib  = 0x7e0000000000
	syntheticSize = 1 << 32
)

// newSynthetic builds the interpreter and the types. The caller makes objects and calls finish.
func newSynthetic() *synthetic {
	m := &synthetic{next: syntheticHeap + 16, lib: syntheticLib + 0x10000}
	m.Pages, m.Named = map[uint64]*peek.Page{}, map[string]uint64{}
	m.Mapped = []peek.Region{
		{Start: syntheticLib, End: syntheticLib + 1<<24, Path: "/usr/lib/libpython3.13.so", Readable: true},
		{Start: syntheticHeap, End: syntheticHeap + syntheticSize, Readable: true, Writable: true, Private: true},
	}
	m.typ = m.alloc(1024)
	m.object = m.newType("object", 0, 16)
	m.fillType(m.typ, "type", flagType|flagGC|flagHeap, 920)
	m.dict, m.list = m.newType("dict", flagDict|flagGC, 48), m.newType("list", flagList|flagGC, 40)
	m.tuple, m.str = m.newType("tuple", flagTuple|flagGC, 24), m.newType("str", flagStr, 64)
	m.module = m.newType("module", flagGC, 64)
	base := m.newType("torch._C.TensorBase", flagGC, 64)
	m.tensor = m.newType("Tensor", flagGC|flagHeap, 64, base)
	m.own = m.newType("Trainer", flagGC|flagHeap|flagManaged, 16)
	m.tensorImpl, m.storageImpl = m.vtable(tensorImpl), m.vtable(storageImpl)
	m.meta, m.node = m.vtable(autogradMeta), m.vtable(graphNode)
	return m
}

func (m *synthetic) put(a, v uint64) {
	p := m.Pages[a>>peek.PageShift]
	if p == nil {
		p = new(peek.Page)
		m.Pages[a>>peek.PageShift] = p
	}
	binary.LittleEndian.PutUint64(p[a%peek.PageSize:], v)
}

// puts writes words one after the other.
func (m *synthetic) puts(a uint64, words ...uint64) uint64 {
	for i, w := range words {
		m.put(a+8*uint64(i), w)
	}
	return a
}

func (m *synthetic) text(a uint64, s string) uint64 {
	for i := range len(s) {
		at := a + uint64(i)
		m.put(at&^7, m.get(at&^7)|uint64(s[i])<<(8*(at&7)))
	}
	return a
}

func (m *synthetic) get(a uint64) uint64 {
	if p := m.Pages[a>>peek.PageShift]; p != nil {
		return binary.LittleEndian.Uint64(p[a%peek.PageSize:])
	}
	return 0
}

// alloc takes memory as glibc gives it: the size in front of it.
func (m *synthetic) alloc(n uint64) uint64 {
	n = (n + 8 + 15) &^ 15
	a := m.next
	m.put(a-8, n|1)
	m.next += n
	return a
}

func (m *synthetic) allocLib(n uint64) uint64 {
	a := m.lib
	m.lib += (n + 15) &^ 15
	return a
}

// vtable makes the type information of a class: its own vtable, the name.
func (m *synthetic) vtable(name string) uint64 {
	text, info, table := m.text(m.allocLib(uint64(len(name))+1), name), m.allocLib(32), m.allocLib(32)
	m.puts(info, table, text)
	m.puts(table, 0, info)
	return table + 16
}

func (m *synthetic) newType(name string, flags, basic uint64, bases ...uint64) uint64 {
	t := m.alloc(1024)
	m.fillType(t, name, flags, basic, bases...)
	return t
}

func (m *synthetic) fillType(t uint64, name string, flags, basic uint64, bases ...uint64) {
	mro := m.puts(m.alloc(24+8*uint64(len(bases)+1)), 1, m.tuple, uint64(len(bases)+1), t)
	m.puts(mro+32, bases...)
	m.puts(t, 1, m.typ)
	m.put(t+tpName, m.text(m.alloc(uint64(len(name))+1), name))
	m.put(t+tpBasicSize, basic)
	m.put(t+tpFlags, flags|flagReady)
	m.put(t+tpMRO, mro)
}

// collect makes an object that the collector tracks, with room in front of it.
func (m *synthetic) collect(typ, size uint64) uint64 {
	a := m.alloc(size+32) + 32
	m.puts(a, 1, typ)
	m.tracked = append(m.tracked, a)
	return a
}

func (m *synthetic) newStr(s string) uint64 {
	a := m.puts(m.alloc(41+uint64(len(s))), 1, m.str, uint64(len(s)), 0, 1<<2|1<<5|1<<6)
	m.text(a+40, s)
	return a
}

// newDict makes a dictionary of string objects and values.
func (m *synthetic) newDict(items ...uint64) uint64 {
	n := uint64(len(items) / 2)
	log2 := uint64(3)
	for 1<<log2 < n*3/2 {
		log2++
	}
	keys := m.puts(m.alloc(32+4<<log2+16*n), 1, log2|(log2+2)<<8|1<<16, 0, n)
	m.puts(keys+32+4<<log2, items...)
	d := m.collect(m.dict, 48)
	m.puts(d+obSize, n, 0, keys, 0)
	return d
}

func (m *synthetic) newList(items ...uint64) uint64 {
	l := m.collect(m.list, 40)
	m.puts(l+obSize, uint64(len(items)), m.puts(m.alloc(8*uint64(len(items))+8), items...), uint64(len(items)))
	return l
}

// newObject makes an instance of Trainer with a dictionary.
func (m *synthetic) newObject(dict uint64) uint64 {
	a := m.collect(m.own, 16)
	m.put(a-24, dict)
	return a
}

// newTensor makes a tensor whose data are at an address of a GPU.
func (m *synthetic) newTensor(data, bytes uint64) uint64 {
	st := m.puts(m.alloc(80), m.storageImpl, 1, data, 0, 0, 1, bytes)
	impl := m.puts(m.alloc(160), m.tensorImpl, 1, st)
	a := m.collect(m.tensor, 64)
	m.put(a+24, impl)
	m.put(impl+56, a)
	return a
}

func (m *synthetic) newModule(dict uint64) uint64 {
	a := m.collect(m.module, 64)
	m.put(a+moduleDict, dict)
	return a
}

// finish makes the runtime, with main as the variables of __main__.
func (m *synthetic) finish(main ...uint64) *peek.Image {
	runtime, interp := m.allocLib(4096), m.alloc(4096)
	modules := m.newDict(m.newStr("sys"), m.newModule(m.newDict()), m.newStr("builtins"), m.newModule(m.newDict()),
		m.newStr("__main__"), m.newModule(m.newDict(main...)))
	fields := make([]uint64, 40)
	fields[0], fields[4], fields[7], fields[8], fields[9], fields[10], fields[11] = 0x30d00f0, 1024, 0, 8, 512, 16, 24
	fields[22], fields[28], fields[29], fields[31], fields[32] = 72, 8, 0, 72, 70
	m.puts(m.puts(runtime, 0x7970677562656478)+8, fields...)
	m.put(runtime+1024, interp)
	thread := m.alloc(512)
	m.puts(thread, 0, 0, interp)
	m.puts(interp, 0, thread, modules)
	version := m.allocLib(8)
	m.put(version, 0x030d05f0)
	previous := interp + 512
	for _, a := range m.tracked {
		m.put(previous, a-gcHead)
		m.put(a-gcHead+8, previous)
		previous = a - gcHead
	}
	m.put(previous, interp+512)
	m.put(interp+512+8, previous)
	m.Named = map[string]uint64{peek.RuntimeSymbol: runtime, peek.VersionSymbol: version, peek.TypeSymbol: m.typ}
	return &m.Image
}

// syntheticJob holds storages in a list, a dictionary, an attribute, a gradient and a graph.
func syntheticJob() *peek.Image { return growingJob(0) }

// growingJob is the same after a list got some more storages.
func growingJob(more int) *peek.Image {
	m := newSynthetic()
	data := uint64(0x7d0000000000)
	tensor := func() uint64 { data += 1 << 21; return m.newTensor(data, 1<<20) }
	weight, loss, gradient, saved := tensor(), tensor(), tensor(), tensor()
	meta := m.alloc(112)
	m.put(m.get(weight+24)+24, m.puts(meta, m.meta))
	m.put(meta+40, m.get(gradient+24))
	node, meta := m.puts(m.alloc(200), m.node, 0, 0), m.alloc(112)
	m.put(node+64, m.get(saved+24))
	m.put(m.get(loss+24)+24, m.puts(meta, m.meta))
	m.put(meta+48, node)
	inner := m.newDict(m.newStr("weight"), weight)
	layer := m.newObject(m.newDict(m.newStr("_parameters"), inner))
	model := m.newObject(m.newDict(m.newStr("_modules"), m.newDict(m.newStr("0"), layer)))
	history := []uint64{tensor(), tensor(), tensor()}
	a := m.newObject(0)
	m.put(a-24, m.newDict(m.newStr("me"), a, m.newStr("held"), tensor()))
	cached := tensor()
	for range more {
		history = append(history, tensor())
	}
	trainer := m.newObject(m.newDict(m.newStr("history"), m.newList(history...)))
	return m.finish(m.newStr("model"), model, m.newStr("trainer"), trainer, m.newStr("losses"), m.newList(loss),
		m.newStr("cache"), m.newDict(m.newStr("k"), m.newDict(m.newStr("v\x1b[31m"), cached)))
}

// largeJob has about n objects that the collector tracks, a tensor for every 25.
func largeJob(n int) *peek.Image {
	m := newSynthetic()
	var rows []uint64
	id, value := m.newStr("id"), m.newStr("value")
	for i := 0; len(m.tracked) < n; i++ {
		var cells []uint64
		for range 8 {
			cells = append(cells, m.newList(id, value), m.newDict(id, m.newList(), value, id), m.newObject(m.newDict(id, value)))
		}
		cells = append(cells, m.newTensor(0x7d0000000000+uint64(i)<<12, 4096))
		rows = append(rows, m.newObject(m.newDict(m.newStr(fmt.Sprint("row", i)), m.newList(cells...))))
	}
	return m.finish(m.newStr("rows"), m.newList(rows...))
}

var _ peek.Memory = (*peek.Image)(nil)

func TestSynthetic(t *testing.T) {
	r := walkImage(t, syntheticJob(), Options{})
	golden(t, "synthetic", render(r))
	r = walkImage(t, syntheticJob(), Options{HideNames: true})
	golden(t, "synthetic-hidden", render(r))
}

// writeImage writes the pages that a walk of the job reads.
func writeImage(t *testing.T, job peek.Memory, file string) {
	t.Helper()
	c := peek.NewCopy(job, DefaultMemory)
	defer c.Close()
	if err := c.Take(context.Background()); err != nil {
		t.Fatal(err)
	}
	walkImage(t, c, Options{})
	var b bytes.Buffer
	if err := c.Record(&b); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestStoredImagesAreThoseOfTheJob: tests of reports read the images of the synthetic job, early
// and later.
func TestStoredImagesAreThoseOfTheJob(t *testing.T) {
	for name, more := range map[string]int{"early": 0, "later": 2} {
		job, file := growingJob(more), "testdata/synthetic-"+name+".image"
		if *update {
			writeImage(t, job, file)
		}
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		image, err := peek.ReadImage(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		if got, want := render(walkImage(t, image, Options{})), render(walkImage(t, job, Options{})); got != want {
			t.Errorf("%s has\n%swant\n%s", file, got, want)
		}
	}
}
