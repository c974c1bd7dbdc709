// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/holders/peek"
)

const (
	syntheticStack = 0x7ffe00000000
	syntheticGPU   = 0x7d0000000000
)

// newStorage makes a storage of some pages that no object of Python has, and its TensorImpl.
func (m *synthetic) newStorage(pages uint64) (st, impl uint64) {
	st = m.puts(m.alloc(80), m.storageImpl, 1, syntheticGPU+pages<<21, 0, 0, 1, pages<<12)
	impl = m.puts(m.alloc(160), m.tensorImpl, 1, st)
	return st, impl
}

// nativeJob has storages of 1 to 8 pages that only C and C++ hold, and allocations of 11 to 18.
func nativeJob() (*peek.Image, []Range) {
	m := newSynthetic()
	m.Mapped = append(m.Mapped, peek.Region{Start: syntheticStack, End: syntheticStack + 1<<16, Path: "[stack]", Readable: true, Writable: true, Private: true})
	m.Mapped[0].Path = "/usr/lib/libtorch_cuda.so"
	m.Mapped = append(m.Mapped[:1], append([]peek.Region{
		{Start: syntheticLib + 1<<24, End: syntheticLib + 1<<24 + 4096, Path: "/usr/lib/libtorch_cuda.so", Readable: true, Writable: true, Private: true},
	}, m.Mapped[1:]...)...)
	impls := make([]uint64, 9)
	for k := range uint64(8) {
		_, impls[k+1] = m.newStorage(k + 1)
	}
	stack, static := uint64(syntheticStack+1<<16-64), uint64(syntheticLib+1<<24)
	vector := func(impl uint64) uint64 { return m.puts(m.alloc(32), impl, 0) }
	tensors := vector(impls[4])
	m.put(stack, impls[1])
	m.put(stack+8, vector(impls[2]))
	m.puts(m.alloc(64), m.vtable("N4c10d7ReducerE"), impls[3])
	m.puts(m.alloc(64), m.vtable("St23_Sp_counted_ptr_inplaceIN4aoti5ModelESaIvELN9__gnu_cxx12_Lock_policyE2EE"), 1, tensors, tensors+8, tensors+16)
	m.puts(m.alloc(64), m.vtable("N5torch3jit8CompoundE"), 1, vector(impls[8])) // it can be out of use
	m.puts(m.alloc(200), m.node, 1, 0, impls[5])
	m.put(static, impls[6])
	field := m.newType("cupy.cuda.memory.Memory", flagGC, 48)
	held := m.collect(field, 48)
	m.put(held+24, vector(impls[7]))

	ranges := make([]Range, 0, 8)
	address := func(k uint64) uint64 { return syntheticGPU + (10+k)<<21 + 512 }
	for k := range uint64(8) {
		ranges = append(ranges, Range{Address: address(k + 1), Bytes: (11 + k) << 12, Device: 1})
	}
	integer := m.newType("int", flagInt, 24)
	number := m.puts(m.alloc(32), 1, integer, 2<<3, address(1)&(1<<30-1)|address(1)>>30<<32)
	memory, view, buffer, lost := m.collect(field, 48), m.collect(field, 48), m.collect(field, 48), m.collect(field, 48)
	m.put(memory+32, address(2))
	m.put(view+32, address(3)+1024)
	m.put(buffer+32, vector(address(4)))
	m.put(lost+32, address(5))
	m.put(stack+16, address(6))
	m.puts(m.alloc(64), m.vtable("N3rmm2mr8pool_memE"), 0, address(7))
	m.alloc(64)
	main := []uint64{m.newStr("held"), held, m.newStr("count"), number, m.newStr("memory"), memory, m.newStr("view"), view, m.newStr("buffer"), buffer}
	main = append(main, m.newStr("tensor"), m.newTensor(syntheticGPU, 4096))
	return m.finish(main...), ranges
}

func TestHoldersThatAreNoPath(t *testing.T) {
	m, ranges := nativeJob()
	r := walkImage(t, m, Options{Addresses: ranges})
	golden(t, "native", render(r))
}

// TestAddressesMayComeLater: once memory was copied, they count as those that were given.
func TestAddressesMayComeLater(t *testing.T) {
	m, ranges := nativeJob()
	asked := 0
	r := walkImage(t, m, Options{AddressesLater: func() []Range { asked++; return ranges }})
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	golden(t, "native", render(r))
}

// TestStorageWithoutEvidenceHasNoHolder: a step is not said to use what no stack leads to.
func TestStorageWithoutEvidenceHasNoHolder(t *testing.T) {
	m, ranges := nativeJob()
	for a := uint64(syntheticStack); a < syntheticStack+1<<16; a += peek.PageSize {
		delete(m.Pages, a>>peek.PageShift)
	}
	for _, s := range walkImage(t, m, Options{Addresses: ranges}).Storages {
		if strings.Contains(s.Holder.String(), inUse) || strings.Contains(s.Holder.String(), onThread) {
			t.Errorf("%#x: %s", s.Address, s.Holder)
		}
	}
}

func TestDemangle(t *testing.T) {
	for name, want := range map[string]string{
		"N4c10d7ReducerE": "c10d::Reducer", "7MyClass": "MyClass", "St6thread": "std::thread", "NSt6thread6_StateE": "std::thread::_State",
		"St23_Sp_counted_ptr_inplaceIN5torch8autograd9GraphTaskESaIvELN9__gnu_cxx12_Lock_policyE2EE": "torch::autograd::GraphTask",
		"N12_GLOBAL__N_15CacheE": "Cache", "N2at6vectorIiEE": "at::vector", "": "", "N": "", "9999x": "", "3ab": "",
	} {
		if got := demangle(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// The end of a name tells classes apart, not the namespaces.
func TestALongClassIsNamedByItsEnd(t *testing.T) {
	c := &class{name: "N41a_namespace_with_a_name_of_40_characters_19and_another_inside_15TheClassThatHasE"}
	if got, _ := c.holds(); !strings.HasPrefix(got, "C++ object of class …") || !strings.HasSuffix(got, "::TheClassThatHas") || len(got) > 100 {
		t.Errorf("it is named %q", got)
	}
}
