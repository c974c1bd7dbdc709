// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/probes"
)

// oddRuntime is a runtime whose wrappers differ from those of NVIDIA's: no stack shows cudaMalloc
// and cudaMallocHost, which end with a jump, and cudaHostAlloc does not call the driver.
const oddRuntime = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
static int (*device)(void **, size_t), (*managed)(void **, size_t, unsigned), (*host)(void **, size_t);
__attribute__((constructor)) static void load(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	device = dlsym(library, "cuMemAlloc_v2");
	managed = dlsym(library, "cuMemAllocManaged");
	host = dlsym(library, "cuMemAllocHost_v2");
}
__attribute__((noipa)) static int inner(void **p, size_t size)
{
	int result = host(p, size);
	__asm__ volatile("" ::: "memory");
	return result;
}
int cudaMalloc(void **p, size_t size) { return device(p, size); }
int cudaMallocHost(void **p, size_t size) { return inner(p, size); }
int cudaMallocManaged(void **p, size_t size, unsigned flags)
{
	int result = managed(p, size, 1);
	__asm__ volatile("" ::: "memory");
	return result;
}
int cudaHostAlloc(void **p, size_t size, unsigned flags)
{
	*p = malloc(size);
	return 0;
}
`

// allocated returns how many objects each function of CUDA has allocated.
func allocated(s *ledger.Snapshot) map[string]uint64 {
	counts := map[string]uint64{}
	for _, x := range s.Sites {
		counts[x.API] += x.AllocObjects
	}
	return counts
}

func TestWrappersThatNoStackShowsKeepTheirProbes(t *testing.T) {
	fakecuda.OnlyFake(t, "its runtime makes no context")
	m := newMachine(t, 1)
	source, library := filepath.Join(m.folder, "odd.c"), filepath.Join(m.folder, "libcudart.so.99")
	if err := os.WriteFile(source, []byte(oddRuntime), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	m.trace(func(c *Config) { c.pace = probes.Pace{Review: 50 * time.Millisecond, Look: time.Hour} })
	before := links(t)
	// No review takes probes away before the first part has ended, however slow the machine is.
	calls := func(n int) string {
		return fmt.Sprintf("repeat %d\nmalloc a 1\nmanaged b 10\nmallochost c 100\npinned d 1000\nend\nprint done\nwait\n", n)
	}
	const enough = 16 // as probes.enoughCalls
	p := m.start([]string{"LD_PRELOAD=" + library}, m.program("alloc_c"), m.file("free0\nready\nwait\n"+calls(enough)+calls(40)+calls(40)))
	p.ready()
	m.eventually("its wrappers are probed", func() bool { return links(t) >= before+8 })
	probed := links(t)
	p.next()
	p.expect("done")
	if got := allocated(m.snapshot()); got["cudaMalloc"] < enough || got["cudaMallocManaged"] != enough || got["cudaMallocHost"] != enough || got["cudaHostAlloc"] != enough {
		t.Fatalf("allocated %v, want %d of each", got, enough)
	}
	// Only those of cudaMallocManaged and cudaMallocHost go.
	m.eventually("the probes of two wrappers are detached", func() bool { return links(t) == probed-4 })
	p.next()
	p.expect("done")
	m.eventually("the probes of both wrappers are back", func() bool { return links(t) == probed })
	p.next()
	p.expect("done")
	got := allocated(m.snapshot())
	named, unnamed := got["cudaMallocHost"], got["cuMemAllocHost_v2"]
	const all = enough + 40 + 40
	if got["cudaMallocManaged"] != all || got["cudaHostAlloc"] != all || got["cuMemAlloc_v2"] != 0 || named < enough+40 || unnamed == 0 || named+unnamed != all {
		t.Errorf("allocated %v: want %d of each, at most 40 of cudaMallocHost under its driver call", got, all)
	}
	p.end()
}

// TestTheFirstCallOfANewDriverHasItsStack: the runtime loads the driver in its first call. By then
// the runtime's own probes may be detached, and the driver's unwind tables are not loaded yet.
func TestTheFirstCallOfANewDriverHasItsStack(t *testing.T) {
	m := newMachine(t, 1)
	m.trace(func(c *Config) { c.pace = probes.Pace{Review: 20 * time.Millisecond, Look: time.Hour} })
	probed := links(t)
	before := m.script("alloc_c", nil, "repeat 40", "malloc a 1", "end", "ready", "wait")
	before.ready()
	m.eventually("the probes of cudaMalloc are detached", func() bool { return links(t) < probed })
	folder := t.TempDir()
	copyProgram(t, m.fake.Driver("libcuda.so.1"), filepath.Join(folder, "libcuda.so.1"))
	p := m.script("alloc_c", []string{"LD_LIBRARY_PATH=" + folder + ":" + m.fake.Driver("")}, "ready", "wait", "malloc a 1000", "print done", "wait")
	p.ready()
	m.snapshot() // its unwind tables are loaded, and the other driver is probed
	p.next()
	p.expect("done")
	found := false
	s := m.snapshot()
	for _, site := range s.Sites {
		if s.Processes[site.Process].PID != p.pid() || site.AllocBytes != 1000 {
			continue
		}
		frames := names(m.Stack(site.Stack))
		if found = true; site.API != "cudaMalloc" || frames[0] != "cudaMalloc" || frames[len(frames)-1] != "_start" {
			t.Errorf("%s has the stack %v", site.API, frames)
		}
	}
	if !found {
		t.Errorf("its allocation is missing: %+v", s.Sites)
	}
	p.end()
	before.end()
}
