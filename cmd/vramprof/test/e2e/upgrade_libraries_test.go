// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/fakecuda"
)

const upgradeScript = "free0\nready\nwait\nrepeat 100\nmalloc a 1000\nend\nprint half\nwait\nrepeat 50\nmalloc b 10\nend\nprint done\nwait\n"

// upgrade replaces a file with another version, as package managers do: it writes the new one
// beside it and renames it. The new version has the same code and a few more bytes.
func upgrade(t *testing.T, from, path string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(path+".new", append(text, time.Now().String()...), 0o755)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// startUpgraded starts the program and waits for its libraries, the n-th of that name, to be
// probed.
func (s *session) startUpgraded(env []string, program, script string, n int) *target {
	s.t.Helper()
	p := startTarget(s.t, env, program, script)
	p.expectReady()
	for _, library := range []string{"libcudart.so.12", "libcuda.so.1"} {
		s.untilProbedTimes(library, n)
	}
	return p
}

// The libraries and the program are replaced while a process uses them: it continues with the old
// ones, and the next process uses the new ones. Both are traced, with names from the file that each
// runs, although the path of the old program now leads to another file.
func TestLibraryUpgradeKeepsProcessesTraced(t *testing.T) {
	dir := setup(t)
	libraries := privateLibraries(t, dir)
	env := append(dir.Env(t, 1, 8<<30), "LD_LIBRARY_PATH="+libraries)
	name := fmt.Sprintf("up%x", time.Now().UnixNano()&0xffffffff)
	program := copyFile(t, dir.Program("alloc_c"), filepath.Join(t.TempDir(), name))
	script := writeFile(t, "script", upgradeScript)

	old := startTarget(t, env, program, script)
	old.expectReady()
	s := startRecord(t, env, "--name", "^"+name+"$").ready()
	l := startLeaks(t, env, "--name", "^"+name+"$").ready()
	old.next()
	old.expect("half")
	upgradeLibraries(t, dir, libraries)
	upgrade(t, dir.Program("alloc_c"), program)
	next := s.startUpgraded(env, program, script, 2)
	l.untilProbedTimes("libcudart.so.12", 2)
	l.untilProbedTimes("libcuda.so.1", 2)
	s.untilUnwound(next.pid())
	l.untilUnwound(next.pid())
	l.afterASecond() // vramprof may have read its tables before it had mapped everything
	s.after(0)
	next.check(t, true)
	upgrade(t, dir.Program("storm_c"), program) // a program different from the running one
	old.check(t, false)
	p, r := s.stop().profile(), l.stop().leaks()
	old.end()

	if x := r.Losses; x.LostEvents != 0 || x.UnmatchedFrees != 0 || x.ReusedAddresses != 0 {
		t.Error(told(r))
	}
	if len(r.Processes) != 2 || r.Processes[0].Ended == r.Processes[1].Ended {
		t.Errorf("processes %+v, want the old one and the new one, which has ended", r.Processes)
	}
	if got, bytes, live, _ := sums(r); got != 300 || bytes != 2*(100_000+500) || live != 300 {
		t.Errorf("%d allocations of %d bytes, %d live, want 300 of %d; %s", got, bytes, live, 2*(100_000+500), told(r))
	}
	for _, w := range r.Warnings {
		if !strings.Contains(w, " before being probed") && !namelessText.MatchString(w) {
			t.Errorf("warning %q", w)
		}
	}
	b := booksOf(t, p)
	if got, want := b.total(), (values{300, 201_000, 300, 201_000}); got != want {
		t.Errorf("the profile has %v, want %v", got, want)
	}
	for at := range b { // on a busy machine, the new process may have ended before its GPU was known
		if !strings.HasSuffix(at, " main run_script run_script op_malloc level3 level2 level1 cudaMalloc") {
			t.Errorf("the profile has the stack %q", at)
		}
	}
}

func upgradeLibraries(t *testing.T, dir fakecuda.Dir, folder string) {
	t.Helper()
	for _, name := range []string{"libcuda.so.1", "libcudart.so.12"} {
		upgrade(t, dir.Lib(name), filepath.Join(folder, name))
	}
}

// check continues the program through the rest of its work, or through all of it if whole is set,
// and ends it.
func (p *target) check(t *testing.T, whole bool) {
	t.Helper()
	if whole {
		p.next()
		p.expect("half")
	}
	p.next()
	p.expect("done")
	if whole {
		p.end()
	}
}

func (s *session) untilProbedTimes(library string, n int) {
	s.t.Helper()
	eventually(s.t, 90*time.Second, library+" is probed", func() bool {
		return strings.Count(s.stderr.String(), " functions of "+library+"\n") >= n
	})
}

// Each upgrade leaves a file that nothing maps once its last process has ended. Its probes must
// then be removed: they would pin the file and its mount.
func TestUpgradesLeaveNoProbesInUnmappedFiles(t *testing.T) {
	const upgrades = 4
	dir := setup(t)
	libraries := privateLibraries(t, dir)
	env := append(dir.Env(t, 1, 8<<30), "LD_LIBRARY_PATH="+libraries)
	name := fmt.Sprintf("up%x", time.Now().UnixNano()&0xffffffff)
	program := copyFile(t, dir.Program("alloc_c"), filepath.Join(t.TempDir(), name))
	script := writeFile(t, "script", "free0\nready\nwait\nmalloc a 1000\nprint half\nwait\nmalloc b 10\nprint done\nwait\n")
	old := startTarget(t, env, program, script)
	old.expectReady()
	l := startLeaks(t, env, "--name", "^"+name+"$").ready()
	before := vitalsOf(l.cmd.Process.Pid)
	old.check(t, true)
	most := before.link
	for n := range upgrades {
		upgradeLibraries(t, dir, libraries)
		l.startUpgraded(env, program, script, n+2).check(t, true)
		most = max(most, vitalsOf(l.cmd.Process.Pid).link)
	}
	if most <= before.link {
		t.Errorf("%d links with more libraries than before, when there were %d", most, before.link)
	}
	eventually(t, 3*time.Minute, "the probes of replaced libraries are gone", func() bool {
		return vitalsOf(l.cmd.Process.Pid).link <= before.link
	})
	r := l.stop().leaks()
	if got, _, live, ended := sums(r); got != 2*(upgrades+1) || live != got || ended != upgrades+1 {
		t.Errorf("%d allocations, %d live, in %d processes that ended; want %d in %d; %s", got, live, ended, 2*(upgrades+1), upgrades+1, told(r))
	}
}
