// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/json"
)

// memoryCgroup creates a cgroup with a memory limit.
func memoryCgroup(t *testing.T, limit int) string {
	t.Helper()
	name := fmt.Sprintf("vramprof-test-%d", os.Getpid())
	for _, v := range []struct{ root, limit string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"},
	} {
		if _, err := os.Stat(filepath.Join(v.root, "cgroup.procs")); err != nil {
			continue
		}
		dir := filepath.Join(v.root, name)
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { os.Remove(dir) })
		if os.WriteFile(filepath.Join(dir, v.limit), []byte(strconv.Itoa(limit)), 0) == nil {
			return dir
		}
	}
	t.Skip("cannot create a cgroup with a memory limit")
	return ""
}

// startIn starts vramprof in a cgroup.
func startIn(t *testing.T, group string, env []string, args ...string) *session {
	t.Helper()
	s := &session{t: t, done: make(chan error, 1)}
	s.cmd = exec.Command("sh", append([]string{"-c", `echo $$ >"$0"/cgroup.procs && exec "$@"`, group, binary(t)}, args...)...)
	s.cmd.Env, s.cmd.Stdout, s.cmd.Stderr, s.cmd.WaitDelay = env, &s.stdout, &s.stderr, 2*time.Second
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.done <- s.cmd.Wait() }()
	t.Cleanup(func() { s.cmd.Process.Kill() })
	return s
}

// TestOutOfMemoryWritesAllResults: targets of many users allocate until vramprof runs out of memory
// for them. With targets of one user, it would drop details instead.
func TestOutOfMemoryWritesAllResults(t *testing.T) {
	dir := setup(t)
	env := dir.Env(t, 1, 64<<30)
	path := filepath.Join(t.TempDir(), "run.pb.gz")
	targets, args := startFloods(t, dir, env)
	s := start(t, env, append([]string{"record", "-o", path, "-f", "pprof", "-f", "capture", "--max-memory", "128MiB"}, args...)...).ready()
	s.path = path
	for _, p := range targets {
		p.next()
	}
	select {
	case <-s.done:
	case <-time.After(5 * time.Minute):
		t.Fatal("vramprof does not end")
	}
	if code := s.cmd.ProcessState.ExitCode(); code != 1 { // not killed
		t.Errorf("vramprof ended with %v", s.cmd.ProcessState)
	}
	checkOutOfMemory(t, s, "vramprof uses ")
	for _, p := range targets { // they are not held
		p.expect("done")
		p.next()
	}
}

// TestSmallCgroupLimitIsNotReached: the same with a cgroup limit far below --max-memory: nothing is
// killed.
func TestSmallCgroupLimitIsNotReached(t *testing.T) {
	dir := setup(t)
	env := dir.Env(t, 1, 64<<30)
	path := filepath.Join(t.TempDir(), "run.pb.gz")
	targets, args := startFloods(t, dir, env)
	s := startIn(t, memoryCgroup(t, 400<<20), env, append([]string{"record", "-o", path, "--max-memory", "4GiB"}, args...)...).ready()
	s.path = path
	for _, p := range targets {
		p.next()
	}
	for _, p := range targets {
		p.expect("done")
		p.next()
	}
	select {
	case <-s.done: // all have ended, or vramprof ran out of memory
	case <-time.After(time.Minute):
		t.Fatal("vramprof does not end")
	}
	if s.cmd.ProcessState.ExitCode() < 0 || len(s.profile().Sample) == 0 {
		t.Errorf("vramprof ended with %v", s.cmd.ProcessState)
	}
}

// startFloods starts flood_c as many users, and returns the arguments to trace them.
func startFloods(t *testing.T, dir fakecuda.Dir, env []string) (targets []*target, args []string) {
	t.Helper()
	for user := range uint32(32) {
		p := startFlood(t, dir.Program("flood_c"), env, 20_000+user, 5000, 40_000)
		targets = append(targets, p)
		args = append(args, "-p", fmt.Sprint(p.pid()))
	}
	return targets, args
}

// checkOutOfMemory checks that all outputs are complete and state why they end early.
func checkOutOfMemory(t *testing.T, s *session, why string) {
	t.Helper()
	said := "tracing ended early: " + why
	if !strings.Contains(s.stderr.String(), "vramprof: out of memory: "+why) {
		t.Errorf("stderr:\n%s", s.stderr.String())
	}
	if text := strings.Join(strings.Fields(s.stdout.String()), " "); !strings.Contains(text, said) || !strings.Contains(text, "raise --max-memory") {
		t.Errorf("the summary:\n%s", s.stdout.String())
	}
	p := s.profile()
	if comments := strings.Join(p.Comments, "\n"); !strings.Contains(comments, said) {
		t.Errorf("the comments of the profile:\n%s", comments)
	}
	r := openCapture(t, strings.TrimSuffix(s.path, ".pb.gz")+".vram")
	if len(r.Warnings()) != 0 || !r.Ended() {
		t.Errorf("the capture: %q, ended %v", r.Warnings(), r.Ended())
	}
	snapshot := replay(t, r)
	var page bytes.Buffer
	if err := json.WriteLeaks(&page, snapshot, r, report.Options{Top: 1}); err != nil || !strings.Contains(page.String(), said) {
		t.Errorf("the JSON of the capture: %v\n%.2000s", err, page.String())
	}
	var live int64
	for _, x := range p.Sample {
		live += x.Value[2]
	}
	var want uint64
	for i := range snapshot.Sites {
		want += snapshot.Sites[i].LiveObjects
	}
	if uint64(live) != want || live < 10_000 {
		t.Errorf("the profile has %d live objects, the capture %d", live, want)
	}
}
