// SPDX-License-Identifier: Apache-2.0

package accuracy

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// fixed lists the functions of testdata/accuracy/walk.cc by their numbers.
var fixed = []string{"take", "in_library", "coroutine", "handler", "in_signal_handler", "thread_begins", "walk_often", "worker", "main", "library_entry"}

// build is a random program with its library, compiled with one set of flags.
type build struct {
	name  string
	flags []string
}

var builds = []build{
	{"-O2 without frame pointers", []string{"-O2", "-fomit-frame-pointer"}},
	{"-O0", []string{"-O0"}},
	{"-O3, vectors", []string{"-O3", "-mavx2"}},
	{"-Os", []string{"-Os"}},
	{"-O2, not relocatable", []string{"-O2", "-no-pie", "-fno-pie"}},
	{"-O1 with frame pointers", []string{"-O1", "-fno-omit-frame-pointer"}},
}

func (b *build) compile(t *testing.T, fake fakecuda.Dir, seed uint64, functions int) (program, library string) {
	t.Helper()
	dir, sources := t.TempDir(), filepath.Join(root, "testdata", "accuracy")
	text, libraryText := generateProgram(seed, functions)
	for name, text := range map[string]string{"program.cc": text, "library.cc": libraryText} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	program, library = filepath.Join(dir, "walk"), filepath.Join(dir, "libwalk.so")
	common := append([]string{"-std=c++17", "-g", "-I" + sources}, b.flags...)
	var libraryFlags []string
	for _, flag := range common {
		if flag != "-no-pie" && flag != "-fno-pie" {
			libraryFlags = append(libraryFlags, flag)
		}
	}
	for _, args := range [][]string{
		append(libraryFlags, "-fPIC", "-shared", "-o", library, filepath.Join(dir, "library.cc")),
		append(common, "-o", program, filepath.Join(dir, "program.cc"), filepath.Join(sources, "walk.cc"), "-rdynamic",
			fake.Lib("libcudart.so.12"), fake.Lib("libcuda.so.1"), "-ldl", "-lpthread"),
	} {
		if out, err := exec.Command("g++", args...).CombinedOutput(); err != nil {
			t.Fatalf("compile: %v\n%s", err, out)
		}
	}
	return program, library
}

// readTruth reads a program's own record.
func readTruth(t *testing.T, path string) (stacks map[uint64][]place, allocs []allocation) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	stacks = map[uint64][]place{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		n := make([]uint64, len(words))
		for i, word := range words {
			n[i], _ = strconv.ParseUint(word, 10, 64)
		}
		switch words[0] {
		case "s":
			stacks[n[1]] = placesOf(n[2:])
		case "a":
			allocs = append(allocs, allocation{thread: uint32(n[1]), before: n[2], after: n[3], address: n[4], size: n[5], stack: n[6], api: words[7]})
		}
	}
	if err := lines.Err(); err != nil || len(allocs) == 0 {
		t.Fatalf("%s: %d allocations, %v", path, len(allocs), err)
	}
	return stacks, allocs
}

func placesOf(numbers []uint64) (list []place) {
	for _, n := range numbers {
		flags, function := n&0xff, n>>32
		p := place{line: int(n >> 8 & 0xffffff), maybe: flags&1 != 0, inlined: flags&2 != 0, foreign: flags&4 != 0, root: flags&16 != 0}
		if p.function = fmt.Sprint("_", function); function < uint64(len(fixed)) {
			p.function = fixed[function]
		}
		list = append(list, p)
	}
	return list
}

// generated matches functions by name: the compiler may assign their code for exceptions to a line
// of an included header.
var generated = regexp.MustCompile(`^(walk|inl|thr|cmp)_\d+(\(|$)|^(V|Guard)_\d+::|^~Guard_\d+`)

func isWalk(f *callstack.Frame) bool {
	switch filepath.Base(f.File) {
	case "program.cc", "library.cc", "walk.cc":
		return true
	}
	return generated.MatchString(f.Function)
}

func TestStacksOfRandomCppProgramsAreRight(t *testing.T) {
	needRoot(t)
	fake := fakecuda.Build(t)
	var all score
	stacks := 0
	for i, b := range builds[:longer(1, len(builds))] {
		for seed := range uint64(longer(1, 2)) {
			program, library := b.compile(t, fake, uint64(i)*100+seed+1, longer(40, 100))
			s, distinct := walkCpp(t, fake, program, library, seed, longer(1000, 12000), 2, 40)
			t.Logf("%s, seed %d: %d stacks, %d distinct: %v", b.name, seed, s.total(), distinct, s)
			all.merge(s)
			stacks += distinct
		}
	}
	for _, example := range all.examples {
		t.Log(example)
	}
	results.add(t, "stacks, C++", fmt.Sprintf("%s calls, %s distinct stacks", thousands(all.total()), thousands(stacks)), all.String())
	if all.bad() > 0 {
		t.Errorf("want none wrong: %v", &all)
	}
}

// walkCpp runs a program under vramprof and compares all stacks.
func walkCpp(t *testing.T, fake fakecuda.Dir, program, library string, seed uint64, walks, threads, depth int) (*score, int) {
	t.Helper()
	env := append(fake.Env(t, 1, 1<<40), "WALK_LIBRARY="+library)
	file := filepath.Join(t.TempDir(), "truth")
	p := record(t, env, "--", program, file, fmt.Sprint(seed), fmt.Sprint(walks), fmt.Sprint(threads), fmt.Sprint(depth)).wait().played()
	stacks, truth := readTruth(t, file)
	s := &score{}
	both, missed, invented := join(truth, p.allocs)
	if p.snapshot.Stats.Lost > 0 || len(missed) > 0 || len(invented) > 0 {
		t.Errorf("%d events lost, %d allocations missing, %d without a call", p.snapshot.Stats.Lost, len(missed), len(invented))
	}
	for _, j := range both {
		if j.truth.size != j.got.size || j.truth.api != j.got.api {
			t.Errorf("%+v is booked as %+v", j.truth, j.got)
		}
		stack := p.rec.Stack(j.got.stack)
		s.add(compare(stacks[j.truth.stack], stack, isWalk), stacks[j.truth.stack], stack)
	}
	if n := p.snapshot.Stats.NoStack; uint64(s.counts[none]) > n {
		t.Errorf("%d stacks are missing, %d of them counted", s.counts[none], n)
	}
	return s, len(stacks)
}
