// SPDX-License-Identifier: Apache-2.0

package kernelmemory

import (
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/vramprof/vramprof/bpf"
)

func mebi(n uint64) float64 { return float64(n) / (1 << 20) }

// TestGrowingMapTakesWhatIsComputed fills a map and compares with the kernel's figure.
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
	// The kernel counts the sizes of its requests; its allocator rounds them up.
	grown, want := memlock()-before, bpf.MemoryOf(spec, 1).Growth
	if before == memlock() {
		t.Skip("the kernel is older than 6.4: it reports the contents of a map, not its memory")
	}
	if grown > want || grown < want/2 {
		t.Errorf("a full map takes %d bytes more, computed %d", grown, want)
	}
}

func TestMoreCPUsTakeMoreKernelMemory(t *testing.T) {
	var before Need
	for _, cpus := range []int{2, 64, 224} {
		x, err := Compute(cpus, cpus)
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
