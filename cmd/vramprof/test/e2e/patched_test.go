// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/fakecuda"
)

// shapes are the entries that the driver's functions have: of older drivers, and of CUDA 12.9.
var shapes = []string{"", "driver_12.9"}

// driverOf copies the driver of that shape into a folder of the test.
func driverOf(t *testing.T, dir fakecuda.Dir, shape string) (folder string) {
	t.Helper()
	return filepath.Dir(driverNamed(t, dir, shape, "libcuda.so.1"))
}

// driverNamed copies the driver of that shape to a file of this name, which vramprof will tell.
func driverNamed(t *testing.T, dir fakecuda.Dir, shape, name string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	copyFile(t, dir.Lib(filepath.Join(shape, "libcuda.so.1")), path)
	if err := os.Symlink(name, filepath.Join(filepath.Dir(path), "libcuda.so.1")); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	return path
}

// patchedTargets prepares a test of programs that overwrite functions of the driver. All have a
// name by which they are traced.
func patchedTargets(t *testing.T) (dir fakecuda.Dir, program, name string) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("the program patches machine code of x86-64")
	}
	dir = setup(t)
	name = fmt.Sprintf("pat%x", time.Now().UnixNano()&0xffffffff)
	return dir, copyFile(t, dir.Program("patched_c"), filepath.Join(t.TempDir(), name)), name
}

func (p *target) round(want string) { p.t.Helper(); p.next(); p.expect(want) }

func (p *target) kill() { _ = p.Process.Kill(); _ = p.Wait() }

// The kernel has probes in single processes whose threads all count, before Linux 6.6 and from 6.10
// on.
func TestFunctionsThatAProcessHasPatchedAreNotProbedThereButInAllOthers(t *testing.T) {
	dir, program, name := patchedTargets(t)
	env := dir.Env(t, 1, 8<<30)
	var all []*target
	var neighbors []*target // map the same files, and patch nothing
	var files []string
	// A probe in a neighbor would take the trap of a breakpoint at its place.
	shared := map[*target]bool{}
	for _, shape := range shapes {
		for _, how := range []string{"near", "far", "breakpoint"} {
			file := driverNamed(t, dir, shape, fmt.Sprintf("libcuda.so.%d", 900+len(files)))
			own := append(env[:len(env):len(env)], "LD_LIBRARY_PATH="+filepath.Dir(file)+":"+dir.Lib(""))
			all = append(all, startTarget(t, own, program, how))
			neighbors = append(neighbors, startTarget(t, own, program, "none"))
			files = append(files, file)
			shared[neighbors[len(neighbors)-1]] = how == "breakpoint" && shape == "driver_12.9"
		}
	}
	before := map[*target]int{}
	for i, p := range all {
		p.expectReady()
		neighbors[i].expectReady()
		_, before[p] = code(t, p.pid(), files[i])
	}
	s := startRecord(t, env, "--name", "^"+name+"$").ready()
	for i, p := range all {
		p.round("round 1 patched")
		neighbors[i].round("round 1")
		if _, now := code(t, neighbors[i].pid(), files[i]); (now == 0) != shared[neighbors[i]] {
			t.Errorf("%d bytes of probes are in the driver of a neighbor of %v", now, p.Args)
		}
		if _, now := code(t, p.pid(), files[i]); now != before[p] {
			t.Errorf("%v: %d bytes of the driver differ from the file, %d did before the attach", p.Args, now, before[p])
		}
	}
	// Neither a process that ends nor one that comes disturbs the others.
	all[0].kill()
	neighbors[0].round("round 2")
	late := startTarget(t, append(env[:len(env):len(env)], "LD_LIBRARY_PATH="+filepath.Dir(files[0])+":"+dir.Lib("")), program, "none")
	late.expectReady()
	s.untilProbedTimes(filepath.Base(files[0]), 2) // in neighbors[0] and in late
	late.round("round 1")
	profile := s.stop().profile()
	for i, p := range all[1:] {
		p.round("round 2 patched")
		p.kill()
		neighbors[1+i].kill()
	}
	neighbors[0].kill()
	late.kill()
	for _, p := range all {
		want := fmt.Sprintf("process %d (%s) overwrote cuMemAlloc_v2 in its memory", p.pid(), name)
		if !slices.ContainsFunc(profile.Comments, func(c string) bool {
			return strings.Contains(c, want) && strings.Contains(c, "UCX_MEM_CUDA_HOOK_MODE=none")
		}) {
			t.Errorf("no comment says %q: %q", want, profile.Comments)
		}
	}
	calls, ofLate := map[string]int64{}, map[string]int64{}
	for _, x := range profile.Sample {
		if x.NumLabel["pid"][0] == int64(late.pid()) {
			ofLate[label(x, "api")] += x.Value[0]
		} else {
			calls[label(x, "api")] += x.Value[0]
		}
	}
	// One call of the runtime in each round, and six of the driver in those of the neighbors but
	// one.
	rounds := int64(len(neighbors) + 1)
	if n, driver := int64(len(all))+rounds, 6*(rounds-1); calls["cudaMalloc"] != n || calls["cuMemAlloc_v2"] != driver {
		t.Errorf("%v allocations, want %d by cudaMalloc and %d by cuMemAlloc_v2", calls, n, driver)
	}
	if ofLate["cuMemAlloc_v2"] < 6 { // those of the round before it was ready may be missing
		t.Errorf("%v allocations of a later process, want at least 6 by cuMemAlloc_v2", ofLate)
	}
}

func TestAPatchWhileTracingHasRightResults(t *testing.T) {
	dir, program, name := patchedTargets(t)
	type patched struct {
		*target
		library string
		after   string // what it prints from the second round on
		taken   bool   // the probes go, because the patch could be made
	}
	env := dir.Env(t, 1, 8<<30)
	var all []patched
	for _, c := range []struct {
		shape, how, after string
		taken             bool
	}{
		{"", "near", " patched", true}, {"", "breakpoint", " patched", true}, // before the probe
		{"", "far", " not patched", false}, {"driver_12.9", "near", " not patched", false}, {"driver_12.9", "far", " not patched", false},
	} {
		folder := driverOf(t, dir, c.shape)
		p := startTarget(t, append(env[:len(env):len(env)], "LD_LIBRARY_PATH="+folder+":"+dir.Lib("")), program, c.how, "later")
		p.expectReady()
		all = append(all, patched{p, filepath.Join(folder, "libcuda.so.1"), c.after, c.taken})
	}
	var loading []*target
	for _, shape := range shapes {
		p := startTarget(t, append(env[:len(env):len(env)], "LD_LIBRARY_PATH="+driverOf(t, dir, shape)+":"+dir.Lib("")), program, "near", "loaded")
		p.expectReady()
		loading = append(loading, p)
	}
	s := startRecord(t, env, "--name", "^"+name+"$").ready()
	for _, p := range all {
		p.round("round 1" + p.after)
		if p.taken {
			eventually(t, 90*time.Second, "the probes are taken back", func() bool {
				_, n := code(t, p.pid(), p.library)
				return n > 0 && n <= 5 // those of the patch
			})
		}
		p.round("round 2" + p.after)
	}
	either := regexp.MustCompile("^round [12] (patched|not patched)$") // by whether the probe came first
	for _, p := range loading {
		for range 2 {
			p.next()
			if line := p.line(); !either.MatchString(line) {
				t.Errorf("%v printed %q", p.Args, line)
			}
		}
	}
	profile := s.stop().profile()
	for _, p := range all {
		p.round("round 3" + p.after)
		p.kill()
		told := strings.Contains(strings.Join(profile.Comments, "\n"), fmt.Sprintf("process %d (%s) overwrote cuMemAlloc_v2", p.pid(), name))
		if told != p.taken {
			t.Errorf("%v: the profile says that it patched the driver: %v, want %v", p.Args, told, p.taken)
		}
	}
	for _, p := range loading {
		p.kill()
	}
}

// patchedLoader changes a byte behind _dl_debug_state in its memory, and reports whether the rest
// is as it was.
const patchedLoader = `#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void)
{
	unsigned char *p = (void *)_r_debug.r_brk, before[16];
	unsigned long page = sysconf(_SC_PAGESIZE);
	void *start = (void *)((unsigned long)p & -page);
	mprotect(start, 2 * page, PROT_READ | PROT_WRITE | PROT_EXEC);
	p[8] ^= 0xff;
	mprotect(start, 2 * page, PROT_READ | PROT_EXEC);
	memcpy(before, p, sizeof(before));
	puts("ready");
	fflush(stdout);
	getchar();
	puts(memcmp(before, p, sizeof(before)) ? "changed" : "same");
	fflush(stdout);
	getchar();
}
`

// TestALoaderThatAProcessHasPatchedIsProbedInTheCommandAlone records a command next to such a
// process.
func TestALoaderThatAProcessHasPatchedIsProbedInTheCommandAlone(t *testing.T) {
	dir := setupAlone(t) // other sessions have the loader probed
	env := dir.Env(t, 1, 8<<30)
	program := filepath.Join(t.TempDir(), "patched")
	if out, err := exec.Command("gcc", "-O1", "-o", program, writeFile(t, "patched.c", patchedLoader)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p := startCommand(t, exec.Command(program))
	p.expect("ready")
	file := filepath.Join(t.TempDir(), "p.pb.gz")
	s := start(t, env, "record", "-o", file, "--", dir.Program("alloc_c"), writeFile(t, "script", everyOperation)).ready()
	p.round("same")
	s.wait().path = file
	comments := strings.Join(s.profile().Comments, "\n")
	if want := fmt.Sprintf("process %d (patched) overwrote _dl_debug_state in its memory", p.pid()); !strings.Contains(comments, want) {
		t.Errorf("no comment says %q:\n%s", want, comments)
	}
	p.next()
}
