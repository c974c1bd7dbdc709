// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// leavingRuntime is a runtime whose functions leave by longjmp instead of a return while leave is
// set.
const leavingRuntime = `
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
jmp_buf back;
int leave;
static int give(void **p)
{
	static uintptr_t given = 0x10000000;
	if (leave)
		longjmp(back, 1);
	*p = (void *)(given += 0x10000);
	return 0;
}
int cudaMalloc(void **p, size_t size) { return give(p); }
int cudaMallocHost(void **p, size_t size) { return give(p); }
int cudaHostAlloc(void **p, size_t size, unsigned flags) { return give(p); }
int cudaMallocManaged(void **p, size_t size, unsigned flags) { return give(p); }
int cudaMallocAsync(void **p, size_t size, void *stream) { return give(p); }
`

// leavingProgram calls four functions that leave, then a fifth 50 times: all at one stack pointer,
// or each at a lower one.
const leavingProgram = `
#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>
extern jmp_buf back;
extern int leave;
int cudaMalloc(), cudaMallocHost(), cudaHostAlloc(), cudaMallocManaged(), cudaMallocAsync();
static int (*const functions[])() = {cudaMalloc, cudaMallocHost, cudaHostAlloc, cudaMallocManaged, cudaMallocAsync};
static int deeper;
__attribute__((noipa)) static void run(int i)
{
	static volatile int at;
	void *p;
	for (at = i; at < 54; at = at + 1) {
		leave = at < 4;
		if (!setjmp(back))
			functions[at < 4 ? at : 4](&p, (size_t)1000, 0);
		if (deeper && at < 4) {
			run(at + 1);
			return;
		}
	}
}
int main(int argc, char **argv)
{
	deeper = argc > 1;
	puts("ready");
	fflush(stdout);
	getchar();
	run(0);
	puts("done");
	fflush(stdout);
	getchar();
	return 0;
}
`

// TestCallsAfterFourLostReturnsAreBooked: a call whose return is not seen stays open. If it is not
// known to be over, as when the next function is called at the same stack pointer, at most one call
// is lost.
func TestCallsAfterFourLostReturnsAreBooked(t *testing.T) {
	m := newMachine(t, 1)
	library, program := filepath.Join(m.folder, "libcudart.so.99"), filepath.Join(m.folder, m.name+"leaving")
	for _, x := range [][]string{{library, leavingRuntime, "-shared", "-fPIC"}, {program, leavingProgram, library}} {
		source := x[0] + ".c"
		if err := os.WriteFile(source, []byte(x[1]), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("gcc", append([]string{"-O2", "-w", "-std=gnu99", "-o", x[0], source}, x[2:]...)...).CombinedOutput(); err != nil {
			t.Fatalf("gcc: %v\n%s", err, out)
		}
	}
	m.trace(nil)
	for _, c := range []struct {
		at        string
		arguments []string
		lost      uint64 // by this and the program before
	}{{"one stack pointer", nil, 0}, {"lower stack pointers", []string{"deeper"}, 1}} {
		p := m.start(nil, program, c.arguments...)
		p.expect("ready")
		m.loaded(p.pid())
		m.snapshot()
		p.next()
		p.expect("done")
		s := m.snapshot()
		_, index := processOf(t, s, p.pid())
		var booked uint64
		for _, x := range s.Sites {
			if x.Process == index && x.API == "cudaMallocAsync" {
				booked += x.AllocObjects
			}
		}
		if booked != 50 {
			t.Errorf("at %s: booked %d calls of cudaMallocAsync, want 50", c.at, booked)
		}
		if s.Stats.Lost != c.lost {
			t.Errorf("at %s: lost %d calls, want %d: %v", c.at, s.Stats.Lost, c.lost, s.Stats.LostFor)
		}
		p.end()
	}
}
