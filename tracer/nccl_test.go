// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// threadedLibrary allocates, as NCCL does, in a thread that a thread of its own has made.
const threadedLibrary = `
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
int cudaMalloc(void **p, size_t size);
static volatile int made;
static void *serve(void *size)
{
	void *p;
	made = cudaMalloc(&p, (size_t)size) ? -1 : 1;
	for (;;)
		pause();
}
static void *job(void *size)
{
	pthread_t t;
	if (pthread_create(&t, NULL, serve, size))
		made = -1;
	return NULL;
}
int ncclCommInitRank(size_t size)
{
	pthread_t t;
	made = 0;
	if (pthread_create(&t, NULL, job, (void *)size) || pthread_join(t, NULL))
		return 1;
	while (!made)
		usleep(1000);
	return made < 0;
}
`

// callerOfLibrary makes two communicators at two places, and a thread that allocates for itself.
// It unloads the library in between.
const callerOfLibrary = `
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
int cudaMalloc(void **p, size_t size);
static int (*init)(size_t);
static void *load(const char *file)
{
	void *library = dlopen(file, RTLD_NOW);
	init = library ? (int (*)(size_t))dlsym(library, "ncclCommInitRank") : NULL;
	return library;
}
__attribute__((noinline)) int world(void) { int result = init(3 << 20); __asm__ volatile("" ::: "memory"); return result; }
__attribute__((noinline)) int tensor_parallel(void) { int result = init(5 << 20); __asm__ volatile("" ::: "memory"); return result; }
static void *own(void *unused) { void *p; cudaMalloc(&p, 7 << 20); return unused; }
static void line(void) { while (getchar() != '\n'); }
int main(int argc, char **argv)
{
	void *p, *library = load(argv[1]);
	pthread_t t;
	if (!library || cudaMalloc(&p, 1))
		return 1;
	dlclose(library);
	library = load(argv[1]);
	printf("ready %d\n", getpid());
	fflush(stdout);
	line();
	if (!library || world() || tensor_parallel())
		return 1;
	pthread_create(&t, NULL, own, NULL);
	pthread_join(t, NULL);
	puts("done");
	fflush(stdout);
	line();
}
`

// What NCCL's own threads allocate has a stack that goes on with those of the calls that made them,
// down to the program's function. A thread of the program's has its own alone.
func TestWhatThreadsOfNCCLAllocateHasTheCallThatMadeThem(t *testing.T) {
	fakecuda.OnlyFake(t, "it is built with the fake runtime")
	m := newMachine(t, 1)
	library, program := filepath.Join(m.folder, "libnccl.so.2"), filepath.Join(m.folder, m.name+"caller")
	lib := m.fake.Lib("")
	for _, c := range []struct {
		text, output string
		options      []string
	}{{threadedLibrary, library, []string{"-shared", "-fPIC"}}, {callerOfLibrary, program, []string{"-fno-inline", "-rdynamic"}}} {
		source := c.output + ".c"
		if err := os.WriteFile(source, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		options := append(c.options, "-g", "-O1", "-pthread", "-o", c.output, source, "-L"+lib, "-l:libcudart.so.12", "-ldl")
		if out, err := exec.Command("gcc", options...).CombinedOutput(); err != nil {
			t.Skipf("gcc: %v\n%s", err, out)
		}
	}
	p := m.start(nil, program, library)
	p.ready()
	m.trace(nil)
	p.next()
	p.expect("done")
	s := m.snapshot()
	found := map[uint64]string{}
	for i := range s.Sites {
		if x := &s.Sites[i]; x.LiveBytes > 1 && x.Kind == ledger.Device {
			found[x.LiveBytes] += functionsIn(m.Stack(x.Stack))
		}
	}
	for bytes, want := range map[uint64][]string{
		3 << 20: {"serve", "[thread created by]", "job", "[thread created by]", "ncclCommInitRank", "world", "main"},
		5 << 20: {"serve", "[thread created by]", "job", "[thread created by]", "ncclCommInitRank", "tensor_parallel", "main"},
	} {
		rest := found[bytes]
		for _, name := range want {
			_, after, ok := strings.Cut(rest, name)
			if !ok {
				t.Fatalf("%d bytes: stack %q, want %q in order", bytes, found[bytes], want)
			}
			rest = after
		}
	}
	if own := found[7<<20]; !strings.Contains(own, "own") || strings.Contains(own, "thread created") {
		t.Errorf("a thread of the program's own: stack %q", own)
	}
}

func functionsIn(frames []callstack.Frame) string {
	var names []string
	for _, f := range frames {
		names = append(names, f.Function)
	}
	return strings.Join(names, " ")
}
