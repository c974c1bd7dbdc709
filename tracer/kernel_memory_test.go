// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/vramprof/vramprof/bpf"
)

// TestKernelSaysThatMapsTakeWhatIsComputed compares with what the kernel itself says of each map when nothing is in it.
// scripts/test-memory.sh runs it on a machine with many CPUs.
func TestKernelSaysThatMapsTakeWhatIsComputed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	tr, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if err := tr.prober.Wait(); err != nil {
		t.Fatal(err)
	}
	kernel, err := bpf.KernelTypes(btf.NewCache())
	if err != nil {
		t.Fatal(err)
	}
	possible, online, err := CPUs()
	if err != nil {
		t.Fatal(err)
	}
	computed, err := mapMemory(kernel, possible)
	if err != nil {
		t.Fatal(err)
	}
	var said, sum uint64
	compare := func(name string, m *ebpf.Map) {
		info, err := m.Info()
		if err != nil {
			t.Fatal(err)
		}
		n, _ := info.Memlock() // of an empty prefix map 0
		if name == "unwind_info_array" && n == uint64(m.MaxEntries()*m.ValueSize()) {
			t.Skip("the kernel is older than 6.4: it says what is in a map, not what it takes")
		}
		x, ok := computed[name]
		if !ok {
			t.Errorf("%s is not computed", name)
		}
		said, sum = said+n, sum+x.Reserved
		const headers = 1024
		if n > x.Reserved*101/100+headers || x.Reserved > n*101/100+headers {
			t.Errorf("%s takes %d bytes, computed %d", name, n, x.Reserved)
		}
		delete(computed, name)
	}
	for name, m := range tr.unwind.Maps() {
		compare(name, m)
	}
	for of, coll := range map[string]*ebpf.Collection{"probes": tr.coll, "watch": tr.watch.programs} {
		for name, m := range coll.Maps {
			if name[0] == '.' {
				name = of + name
			}
			if _, left := computed[name]; left {
				compare(name, m)
			}
		}
	}
	for name := range computed {
		if !strings.Contains(name, ".") {
			t.Errorf("no map %s was made", name)
		}
	}
	whole, err := KernelMemoryFor(possible, online)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("memory: %d possible CPUs, %d online: the kernel says %.1f MiB of the maps, computed %.1f; with rings at least %.1f, at most %.1f",
		possible, online, mebi(said), mebi(sum), mebi(whole.Least), mebi(whole.Most))
	if whole.Least < said || whole.Most < whole.Least {
		t.Errorf("it is %+v in all", whole)
	}
}

func mebi(n uint64) float64 { return float64(n) / (1 << 20) }

// TestGrowingMapTakesWhatIsComputed fills one, and asks the kernel.
func TestGrowingMapTakesWhatIsComputed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	kernel, err := bpf.KernelTypes(btf.NewCache())
	if err != nil {
		t.Fatal(err)
	}
	probes, err := bpf.LoadProbes(kernel)
	if err != nil {
		t.Fatal(err)
	}
	if !bpf.GrowingMaps(kernel) {
		t.Skip("no map grows on this kernel")
	}
	spec := probes.Maps["blocks"]
	spec.MaxEntries = 10_000
	m, err := ebpf.NewMap(spec)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	memlock := func() uint64 {
		info, err := m.Info()
		if err != nil {
			t.Fatal(err)
		}
		n, _ := info.Memlock()
		return n
	}
	before := memlock()
	for i := range uint64(spec.MaxEntries) {
		if err := m.Put(i, i); err != nil {
			t.Fatal(err)
		}
	}
	// The kernel counts what it asks for, and its allocator gives out some more.
	grown, want := memlock()-before, bpf.MemoryOf(spec, 1).Growth
	if before == memlock() {
		t.Skip("the kernel is older than 6.4: it says what is in a map, not what it takes")
	}
	if grown > want || grown < want/2 {
		t.Errorf("a full map takes %d bytes more, computed %d", grown, want)
	}
}

func TestMoreCPUsTakeMoreKernelMemory(t *testing.T) {
	var before KernelMemory
	for _, cpus := range []int{2, 64, 224} {
		x, err := KernelMemoryFor(cpus, cpus)
		if err != nil {
			t.Skip(err)
		}
		t.Logf("%d CPUs: at least %.1f MiB, at most %.1f", cpus, mebi(x.Least), mebi(x.Most))
		if x.Least <= before.Least || x.Most <= before.Most {
			t.Errorf("%d CPUs take %+v, fewer %+v", cpus, x, before)
		}
		before = x
	}
}
