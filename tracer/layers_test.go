// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/probes"
)

// driverShim is a library between the runtime and the driver, such as those that limit memory: it
// has functions of the driver's names, which call the driver's; with JUMP, they end with a jump to
// it.
const driverShim = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
static int (*alloc)(uint64_t *, size_t), (*release)(uint64_t);
static int (*get)(const char *, void **, int, uint64_t, int *);
__attribute__((constructor)) static void load(void)
{
	void *driver = dlopen(getenv("SHIM_DRIVER"), RTLD_NOW | RTLD_LOCAL);
	alloc = dlsym(driver, "cuMemAlloc_v2");
	release = dlsym(driver, "cuMemFree_v2");
	get = dlsym(driver, "cuGetProcAddress_v2");
}
#ifdef JUMP
#define END
#else
#define END __asm__ volatile("" ::: "memory");
#endif
__attribute__((noipa)) static int limited(uint64_t *p, size_t size)
{
	int result = alloc(p, size);
	END return result;
}
int cuMemAlloc_v2(uint64_t *p, size_t size)
{
	int result = limited(p, size);
	END return result;
}
int cuMemFree_v2(uint64_t p)
{
	int result = release(p);
	END return result;
}
int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status)
{
	int result = get(name, function, version, flags, status);
	if (!strcmp(name, "cuMemAlloc"))
		*function = cuMemAlloc_v2;
	if (!strcmp(name, "cuMemFree"))
		*function = cuMemFree_v2;
	return result;
}
`

// shim builds driverShim as a file of that name, and returns variables with which programs load it
// in the driver's place.
func (m *machine) shim(name string, flags ...string) []string {
	m.t.Helper()
	folder := m.t.TempDir()
	source, library := filepath.Join(folder, "shim.c"), filepath.Join(folder, name)
	if err := os.WriteFile(source, []byte(driverShim), 0o600); err != nil {
		m.t.Fatal(err)
	}
	flags = append(flags, "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl")
	if out, err := exec.Command("gcc", flags...).CombinedOutput(); err != nil {
		m.t.Fatalf("gcc: %v\n%s", err, out)
	}
	if name != "libcuda.so.1" {
		if err := os.Symlink(name, filepath.Join(folder, "libcuda.so.1")); err != nil {
			m.t.Fatal(err)
		}
	}
	return []string{"LD_LIBRARY_PATH=" + folder + ":" + m.fake.Driver(""), "SHIM_DRIVER=" + m.fake.Driver("libcuda.so.1")}
}

// TestAllocationsThroughALibraryBeforeTheDriverAreBookedOnce, and have one site, whether the
// runtime is probed or only the driver. Its file may have the driver's name, or a name that begins
// likewise.
func TestAllocationsThroughALibraryBeforeTheDriverAreBookedOnce(t *testing.T) {
	for _, c := range []struct {
		name, file string
		flags      []string
	}{
		{"another name", "libvgpu.so", nil},
		{"a name like the driver's", "libcuda-control.so", nil},
		{"the driver's name", "libcuda.so.1", nil},
		{"the driver's name, by jumps", "libcuda.so.1", []string{"-DJUMP"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t, 1)
			m.trace(func(c *Config) { c.pace = probes.Pace{Review: 20 * time.Millisecond, Look: time.Hour} })
			probed := links(t)
			const calls = "repeat 40\nmalloc a 1000\nend\nrepeat 30\nmalloc b 10\nfree b\nend\nprint done\nwait\n"
			p := m.start(m.shim(c.file, c.flags...), m.program("alloc_c"), m.file("free0\nready\nwait\n"+calls+calls))
			p.ready()
			m.loaded(p.pid())
			m.snapshot()
			check := func(when string, rounds uint64) {
				t.Helper()
				p.next()
				p.expect("done")
				s := m.snapshot()
				_, index := processOf(t, s, p.pid())
				var sites []ledger.Site
				var objects, bytes uint64
				for _, x := range s.Sites {
					if x.Process == index {
						sites = append(sites, x)
						objects, bytes = objects+x.AllocObjects, bytes+x.LiveBytes
					}
				}
				if len(sites) != 1 || objects != 70*rounds || bytes != 40_000*rounds {
					t.Errorf("%s: %d sites with %d allocations, %d bytes live, want 1 with %d, %d", when, len(sites), objects, bytes, 70*rounds, 40_000*rounds)
					for _, x := range sites {
						t.Logf("%d of %s: %v", x.AllocObjects, x.API, names(m.Stack(x.Stack)))
					}
				}
				if x := s.Stats; x.UnmatchedFrees != 0 || x.Reused != 0 || x.Lost != 0 {
					t.Errorf("%s: %d frees are unmatched, %d addresses reused, %d events lost", when, x.UnmatchedFrees, x.Reused, x.Lost)
				}
			}
			check("with the runtime's probes", 1)
			m.eventually("the probes of cudaMalloc are detached", func() bool { return links(t) < probed })
			check("without them", 2)
			p.end()
		})
	}
}
