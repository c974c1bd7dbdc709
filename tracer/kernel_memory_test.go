// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"os"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/kernelmemory"
)

// TestKernelSaysThatMapsTakeWhatIsComputed compares the computed memory of each empty map with the
// kernel's figure. scripts/test-memory.sh runs it on a machine with many CPUs.
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
	possible, online, err := kernelmemory.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	computed, err := kernelmemory.ByMap(kernel, possible)
	if err != nil {
		t.Fatal(err)
	}
	var said, sum uint64
	compare := func(name string, m *ebpf.Map) {
		info, err := m.Info()
		if err != nil {
			t.Fatal(err)
		}
		n, _ := info.Memlock() // 0 for an empty prefix map
		if name == "unwind_info_array" && n == uint64(m.MaxEntries()*m.ValueSize()) {
			t.Skip("the kernel is older than 6.4: it reports the contents of a map, not its memory")
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
			t.Errorf("map %s was not created", name)
		}
	}
	whole, err := kernelmemory.Compute(possible, online)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("memory: %d possible CPUs, %d online: the kernel says %.1f MiB of the maps, computed %.1f; with rings at least %.1f, at most %.1f",
		possible, online, mebi(said), mebi(sum), mebi(whole.Least), mebi(whole.Most))
	if whole.Least < said || whole.Most < whole.Least {
		t.Errorf("the sum is %+v", whole)
	}
	if err := tr.tensors.Prepare(); err != nil {
		t.Fatal(err)
	}
	said = 0
	for _, name := range []string{"near_blocks", "blocks"} {
		var m *ebpf.Map
		if err := tr.coll.Maps[name].Lookup(uint32(0), &m); err != nil {
			t.Fatal(err)
		}
		info, err := m.Info()
		if err != nil {
			t.Fatal(err)
		}
		n, _ := info.Memlock()
		said += n
		m.Close()
	}
	if t.Logf("with PyTorch %.1f MiB more, computed %.1f", mebi(said), mebi(whole.Torch)); said > whole.Torch || said < whole.Torch*9/10 {
		t.Errorf("maps of live tensors take %d bytes, computed %d", said, whole.Torch)
	}
}

func mebi(n uint64) float64 { return float64(n) / (1 << 20) }
