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

	"github.com/vramprof/vramprof/report"
)

// memoryCgroup makes a cgroup with a limit of memory.
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
	t.Skip("no cgroup with a limit of memory can be made here")
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

// TestOutOfMemoryEndsWithEverythingWritten has a target allocate until vramprof has no memory for it.
func TestOutOfMemoryEndsWithEverythingWritten(t *testing.T) {
	dir := setup(t)
	for _, c := range []struct {
		name, why string
		start     func(t *testing.T, env []string, args ...string) *session
	}{
		{"its ceiling", "vramprof itself takes ", func(t *testing.T, env []string, args ...string) *session {
			return start(t, env, append(args, "--max-memory", "64MiB")...)
		}},
		{"that of its cgroup", "vramprof's cgroup uses ", func(t *testing.T, env []string, args ...string) *session {
			return startIn(t, memoryCgroup(t, 330<<20), env, append(args, "--max-memory", "4GiB")...)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			env := dir.Env(t, 1, 64<<30)
			target := startTarget(t, env, dir.Program("alloc_c"), writeFile(t, "script", "ready\nwait\nrepeat 1500000\nmalloc a 16\nend\nprint done\nwait\n"))
			target.expectReady()
			path := filepath.Join(t.TempDir(), "run.pb.gz")
			s := c.start(t, env, "record", "-o", path, "-f", "pprof", "-f", "capture", "-p", fmt.Sprint(target.pid())).ready()
			s.path = path
			target.next()
			select {
			case <-s.done:
			case <-time.After(5 * time.Minute):
				t.Fatal("vramprof does not end")
			}
			if code := s.cmd.ProcessState.ExitCode(); code != 1 { // not killed
				t.Errorf("vramprof ended with %v", s.cmd.ProcessState)
			}
			checkOutOfMemory(t, s, c.why)
			target.expect("done")
			target.end()
		})
	}
}

// checkOutOfMemory wants all outputs to be whole, and to say why they end early.
func checkOutOfMemory(t *testing.T, s *session, why string) {
	t.Helper()
	said := "tracing ended early: " + why
	if !strings.Contains(s.stderr.String(), "vramprof: out of memory: "+why) {
		t.Errorf("it said on stderr:\n%s", s.stderr.String())
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
	if err := report.WriteLeaksJSON(&page, snapshot, r, report.LeaksOptions{Top: 1}); err != nil || !strings.Contains(page.String(), said) {
		t.Errorf("the JSON of the capture: %v\n%.2000s", err, page.String())
	}
	var live int64
	for _, x := range p.Sample {
		live += x.Value[2]
	}
	if len(snapshot.Sites) == 0 || uint64(live) != snapshot.Sites[0].LiveObjects || live < 10_000 {
		t.Errorf("the profile has %d live objects, the capture %+v", live, snapshot.Sites)
	}
}
