// SPDX-License-Identifier: Apache-2.0

package accuracy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// Two libraries whose code differs only in its name and, through PAD, in the size of its frames.
const reloaded = `#include <stddef.h>
typedef int take_function(void **, size_t);
__attribute__((noinline)) static int in_NAME(take_function *take, void **p) { PAD int r = take(p, 100); __asm__ volatile("nop"); return r; }
int entry(take_function *take, void **p) { int r = in_NAME(take, p); __asm__ volatile("nop"); return r; }
`

func compileC(t *testing.T, to, source string, args ...string) {
	t.Helper()
	args = append([]string{"-std=gnu11", "-g", "-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-o", to, source}, args...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("compile: %v\n%s", err, out)
	}
}

// TestStacksThroughReplacedLibrariesAreRight: a command started by vramprof is held while vramprof
// reads its libraries, so none of its stacks may be attributed to the library that was mapped
// before. A process that was already running is not held: calls right after loading can be wrong.
// The test only measures those.
func TestStacksThroughReplacedLibrariesAreRight(t *testing.T) {
	needRoot(t)
	fake := fakecuda.Build(t)
	dir := t.TempDir()
	program := filepath.Join(dir, "reload")
	compileC(t, program, filepath.Join(root, "testdata", "accuracy", "reload.c"), fake.Lib("libcudart.so.12"), "-ldl")
	var libraries []string
	for name, pad := range map[string]string{"A": "", "B": "volatile char pad[256]; pad[0] = 1;"} {
		source := filepath.Join(dir, name+".c")
		if err := os.WriteFile(source, []byte(strings.NewReplacer("NAME", name, "PAD", pad).Replace(reloaded)), 0o644); err != nil {
			t.Fatal(err)
		}
		compileC(t, filepath.Join(dir, "lib"+name+".so"), source, "-shared", "-fPIC")
	}
	libraries = []string{filepath.Join(dir, "libA.so"), filepath.Join(dir, "libB.so")}
	for _, attached := range longer([]bool{false}, []bool{false, true}) {
		for _, pause := range longer([]int{0}, []int{0, 1000, 20_000, 100_000, 300_000}) {
			env, file := fake.Env(t, 1, 1<<40), filepath.Join(t.TempDir(), "truth")
			args := append([]string{file, fmt.Sprint(longer(8, 200)), fmt.Sprint(pause)}, libraries...)
			score, how := (*score)(nil), "attached later"
			if attached {
				target := start(t, env, program, args...)
				target.until("ready")
				s := record(t, env, "-p", fmt.Sprint(target.Process.Pid)).ready()
				target.next()
				target.until("done")
				score = judgeReloads(t, file, s.stop().played())
				target.next()
			} else {
				s := record(t, env, append([]string{"--", program}, args...)...).until("ready")
				fmt.Fprintln(s.input)
				score, how = judgeReloads(t, file, s.until("done\n").stop().played()), "a command"
			}
			for _, example := range score.examples {
				t.Log(example)
			}
			results.add(t, fmt.Sprintf("stacks, libraries in each other's place, %s, pauses of %g ms", how, float64(pause)/1000), fmt.Sprintf("%d calls", score.total()), score.String())
			if score.bad() > 0 && !attached {
				t.Errorf("pauses of %d µs: want none wrong: %v", pause, score)
			}
		}
	}
}

func judgeReloads(t *testing.T, file string, p *played) *score {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var truth []allocation
	for line := range strings.Lines(string(text)) {
		var a allocation
		if _, err := fmt.Sscan(line, &a.thread, &a.before, &a.after, &a.address, &a.stack); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		truth = append(truth, a)
	}
	both, missed, invented := join(truth, p.allocs)
	if len(missed) > 0 || len(invented) > 0 || len(both) == 0 {
		t.Errorf("of %d allocations, %d are missing and %d have no call", len(truth), len(missed), len(invented))
	}
	own := func(f *callstack.Frame) bool {
		return strings.HasPrefix(f.Function, "in_") || f.Function == "take" || f.Function == "entry" || f.Function == "load" || f.Function == "main"
	}
	s := &score{}
	for _, j := range both {
		places := []place{{function: "take"}, {function: []string{"in_A", "in_B"}[j.truth.stack]}, {function: "entry"}, {function: "load"}, {function: "main"}}
		stack := p.rec.Stack(j.got.stack)
		s.add(compare(places, stack, own), places, stack)
	}
	return s
}
