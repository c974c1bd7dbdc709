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
)

// oldestPython and newestPython bound what is promised: 3.8 to what the unwinder knows.
const oldestPython, newestPython = 8, 14

// pythons lists interpreters of this machine by version: the system's, and
// those of pyenv.
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

func TestStacksOfEachPythonVersionAreWholeWhileTheGILIsReleased(t *testing.T) {
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

// Debian builds Python in its own way. These run with a libc of their own too.
func TestStacksOfDebiansPythonsAreWholeWhileTheGILIsReleased(t *testing.T) {
	dir := setup(t)
	for version, suite := range map[string]string{"3.13": "trixie", "3.14": "sid"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			program := fetchPython(t, version, suite)
			env := dir.Env(t, 1, 8<<30)
			tracePython(t, env, startTarget(t, env, program, dir.Program("leak.py"), "--stdin", "--threads", "4"))
		})
	}
}

// fetchPython gets a Python of another Debian suite, and skips the test where
// it cannot be had.
func fetchPython(t *testing.T, version, suite string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(root, "scripts", "fetch-python.sh"), version, suite)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 77 {
		t.Skip(strings.TrimSpace(string(exit.Stderr)))
	} else if err != nil {
		t.Fatalf("fetch Python %s: %v", version, err)
	}
	return strings.TrimSpace(string(out))
}
