// SPDX-License-Identifier: Apache-2.0

package kernelmemory

import (
	"bytes"
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
	spec := bpf.TakeBlockMaps(probes).Far[0]
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

// TestStartTakesLittleKernelMemory computes what older kernels need, too.
func TestStartTakesLittleKernelMemory(t *testing.T) {
	running, err := bpf.KernelTypes(btf.NewCache())
	if err != nil {
		t.Skip(err)
	}
	for _, c := range []struct {
		name   string
		kernel *btf.Spec
		most   map[int]float64 // MiB at the start, by CPUs
	}{
		{"running", running, map[int]float64{2: 100, 64: 120, 224: 150}},
		{"without growing maps", typesOfNothing(t), map[int]float64{2: 150, 64: 200, 224: 300}},
	} {
		var before Need
		for _, cpus := range []int{2, 64, 224} {
			x, err := compute(c.kernel, cpus, cpus)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s, %d CPUs: at least %.1f MiB, %.1f with PyTorch, tables of at most %.1f, in all at most %.1f",
				c.name, cpus, mebi(x.Least), mebi(x.Least+x.Torch), mebi(x.Tables), mebi(x.Most))
			if mebi(x.Least) > c.most[cpus] {
				t.Errorf("%s, %d CPUs: %.1f MiB, want at most %.0f", c.name, cpus, mebi(x.Least), c.most[cpus])
			}
			if x.Least <= before.Least || x.Most <= before.Most {
				t.Errorf("%s: %d CPUs take %+v, fewer %+v", c.name, cpus, x, before)
			}
			if x.Torch == 0 || x.Tables == 0 || x.Most < x.Least+x.Torch+x.Tables {
				t.Errorf("%s, %d CPUs: parts of %+v are missing", c.name, cpus, x)
			}
			before = x
		}
	}
}

// typesOfNothing returns the BTF of a kernel that has no type that another one lacks.
func typesOfNothing(t *testing.T) *btf.Spec {
	t.Helper()
	b, err := btf.NewBuilder([]btf.Type{&btf.Int{Name: "int", Size: 4}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := b.Marshal(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := btf.LoadSpecFromReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return spec
}
