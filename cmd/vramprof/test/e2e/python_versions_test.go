// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report/json"
)

// oldestPython and newestPython are the minor versions of the oldest and newest supported Python:
// 3.8 to the newest that the unwinder knows.
const oldestPython, newestPython = 8, 14

// pythons lists installed interpreters by version: the system's, and those of pyenv.
func pythons() map[string]string {
	home, _ := os.UserHomeDir()
	found := map[string]string{}
	for minor := oldestPython; minor <= newestPython; minor++ {
		version := fmt.Sprintf("3.%d", minor)
		candidates := []string{"/usr/bin/python" + version}
		for _, folder := range []string{os.Getenv("PYENV_ROOT"), filepath.Join(home, ".pyenv")} {
			list, _ := filepath.Glob(filepath.Join(folder, "versions", version+".*", "bin", "python"+version))
			candidates = append(candidates, list...)
		}
		i := slices.IndexFunc(candidates, func(path string) bool { _, err := os.Stat(path); return err == nil })
		if i >= 0 {
			found[version] = candidates[i]
		}
	}
	return found
}

func TestStacksOfEachPythonVersionAreWhole(t *testing.T) {
	dir := setup(t)
	installed := pythons()
	for minor := oldestPython; minor <= newestPython; minor++ {
		version := fmt.Sprintf("3.%d", minor)
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			program, ok := installed[version]
			if !ok {
				t.Skipf("no Python %s on this machine", version)
			}
			env := dir.Env(t, 1, 8<<30)
			tracePython(t, env, startTarget(t, env, program, dir.Program("leak.py"), "--stdin", "--threads", "4"))
		})
	}
}

// TestAClassIsCalledOnOneLineInEachPythonVersion: where a line calls a class, CPython 3.12 and
// later put a frame of their own below that of __init__, but only after some calls. One session
// traces all versions.
func TestAClassIsCalledOnOneLineInEachPythonVersion(t *testing.T) {
	dir := setup(t)
	installed := pythons()
	suites := map[string]string{"3.13": "trixie", "3.14": "sid"}
	env := dir.Env(t, 1, 8<<30)
	versions := map[int]string{} // by pid
	var programs []*target
	var flags []string
	for minor := 11; minor <= newestPython; minor++ {
		version := fmt.Sprintf("3.%d", minor)
		t.Run(version, func(t *testing.T) { // which is skipped alone
			if installed[version] != "" {
				return
			}
			if suites[version] == "" {
				t.Skipf("no Python %s on this machine", version)
			}
			installed[version] = fetchPython(t, version, suites[version])
		})
		if installed[version] == "" {
			continue
		}
		program := startTarget(t, env, installed[version], dir.Program("classes.py"))
		program.expectReady()
		versions[program.pid()] = version
		programs, flags = append(programs, program), append(flags, "-p", fmt.Sprint(program.pid()))
	}
	l := startLeaks(t, env, flags...).ready()
	for _, program := range programs {
		program.next()
		program.expect("done")
	}
	r := l.stop().leaks()
	for _, program := range programs {
		program.end()
	}
	for _, site := range r.Sites {
		version := versions[int(site.PID)]
		delete(versions, int(site.PID))
		if version == "" || site.LiveCount != 200 {
			t.Errorf("%s: a site with %d allocations, want one with 200", version, site.LiveCount)
		}
		var frames []string
		for _, f := range site.Stack {
			if f.Language == "python" {
				frames = append(frames, f.Function)
			}
		}
		if !slices.Equal(frames, []string{"Buffer.__init__", "<module>"}) && !slices.Equal(frames, []string{"__init__", "<module>"}) {
			t.Errorf("%s: %d allocations with the frames %q", version, site.LiveCount, frames)
		}
	}
	for _, version := range versions {
		t.Errorf("%s has no site", version)
	}
}

// loadsPthread returns a folder for PYTHONPATH whose module loads libpthread.so.0 while Python
// starts. CUDA's libraries do so, which were linked before glibc 2.34.
func loadsPthread(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "sitecustomize.py"), []byte("import ctypes\nctypes.CDLL('libpthread.so.0')\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return folder
}

// Debian builds Python differently. These interpreters also run with their own libc.
func TestStacksOfDebiansPythonsAreWhole(t *testing.T) {
	dir := setup(t)
	for version, suite := range map[string]string{"3.13": "trixie", "3.14": "sid"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			program := fetchPython(t, version, suite)
			env := append(dir.Env(t, 1, 8<<30), "PYTHONPATH="+loadsPthread(t))
			tracePython(t, env, startTarget(t, env, program, dir.Program("leak.py"), "--stdin", "--threads", "4"))
		})
	}
}

// Users have Pythons that Debian does not build. VRAMPROF_BUILD_PYTHON lists those to test, or is
// "all": scripts/build-python.sh takes minutes for each that is not cached.
func TestStacksOfBuiltPythonsAreWhole(t *testing.T) {
	dir := setup(t)
	for _, build := range []string{"3.13-gcc", "3.13-clang", "3.14-gcc", "3.14-clang"} {
		t.Run(build, func(t *testing.T) {
			program := builtPython(t, build)
			env := dir.Env(t, 1, 8<<30)
			tracePython(t, env, startTarget(t, env, program, dir.Program("leak.py"), "--stdin", "--threads", "4"))
		})
	}
}

// The unwinder does not know the objects of the free-threaded build: the report must state it.
func TestFreeThreadedPythonIsReportedAsUnknown(t *testing.T) {
	dir := setup(t)
	for _, build := range []string{"3.13t", "3.14t"} {
		t.Run(build, func(t *testing.T) {
			program := builtPython(t, build)
			env := dir.Env(t, 1, 8<<30)
			target := startTarget(t, env, program, dir.Program("leak.py"), "--stdin", "--threads", "4")
			target.expectReady()
			l := startLeaks(t, env, "-p", fmt.Sprint(target.pid())).ready()
			target.next()
			want := parseCalls(t, target.until("done"))
			r := l.stop().leaks()
			target.end()
			count := uint64(0)
			for _, v := range want {
				count += uint64(v[2])
			}
			live := uint64(0)
			for _, site := range r.Sites {
				live += site.LiveCount
				if slices.ContainsFunc(site.Stack, func(f json.FrameReport) bool { return f.Language != "native" }) {
					t.Errorf("a stack is not whole, or has Python frames: %+v", site.Stack)
				}
			}
			if live != count {
				t.Errorf("%d allocations are live, want %d", live, count)
			}
			said := fmt.Sprintf("no Python frames of processes that run %s: the unwinder does not support this build", program)
			if !slices.ContainsFunc(r.Warnings, func(text string) bool { return strings.HasPrefix(text, said) }) {
				t.Errorf("warnings %q, want %q", r.Warnings, said)
			}
		})
	}
}

// builtPython builds a Python. It skips the test if that Python is not selected or cannot be built.
func builtPython(t *testing.T, build string) string {
	t.Helper()
	asked := strings.Fields(os.Getenv("VRAMPROF_BUILD_PYTHON"))
	if !slices.Contains(asked, build) && !slices.Contains(asked, "all") {
		t.Skip("VRAMPROF_BUILD_PYTHON does not select it")
	}
	return pythonOf(t, "build-python.sh", build)
}

// fetchPython downloads a Python of another Debian suite. It skips the test if that is not
// possible.
func fetchPython(t *testing.T, version, suite string) string {
	t.Helper()
	return pythonOf(t, "fetch-python.sh", version, suite)
}

// pythonOf runs a script that prints the path of a Python.
func pythonOf(t *testing.T, script string, arguments ...string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(root, "scripts", script), arguments...)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 77 {
		t.Skip(strings.TrimSpace(string(exit.Stderr)))
	} else if err != nil {
		t.Fatalf("%s %s: %v", script, strings.Join(arguments, " "), err)
	}
	return strings.TrimSpace(string(out))
}
