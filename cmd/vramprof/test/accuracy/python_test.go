// SPDX-License-Identifier: Apache-2.0

package accuracy

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// oldestPython and newestPython are the minor versions of the oldest and newest supported CPython.
const oldestPython, newestPython = 8, 14

// interpreter is an installed or available CPython.
type interpreter struct{ version, path string }

// interpreters lists the system's, those of pyenv, and those of other Debian suites that
// scripts/fetch-python.sh downloads.
func interpreters(t *testing.T) (list []interpreter) {
	home, _ := os.UserHomeDir()
	for minor := oldestPython; minor <= newestPython; minor++ {
		version := fmt.Sprintf("3.%d", minor)
		candidates, _ := filepath.Glob("/usr/bin/python" + version)
		for _, folder := range []string{os.Getenv("PYENV_ROOT"), filepath.Join(home, ".pyenv")} {
			found, _ := filepath.Glob(filepath.Join(folder, "versions", version+".*", "bin", "python"+version))
			candidates = append(candidates, found...)
		}
		if suite := map[int]string{13: "trixie", 14: "sid"}[minor]; suite != "" {
			if path, err := fetchPython(version, suite); err == nil {
				candidates = append(candidates, path)
			} else {
				t.Logf("Python %s: %v", version, err)
			}
		}
		slices.Sort(candidates)
		for _, path := range slices.Compact(candidates) {
			list = append(list, interpreter{version, path})
		}
	}
	return list
}

func fetchPython(version, suite string) (string, error) {
	out, err := exec.Command(filepath.Join(root, "scripts", "fetch-python.sh"), version, suite).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", errors.New(strings.TrimSpace(string(exit.Stderr)))
	}
	return strings.TrimSpace(string(out)), err
}

// readPythonTruth reads walk.py's own record.
func readPythonTruth(t *testing.T, path string) (stacks map[uint64][]place, allocs []allocation) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	stacks = map[uint64][]place{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var x []json.RawMessage
		var sort string
		numbers := make([]uint64, 8)
		if json.Unmarshal(lines.Bytes(), &x) != nil || len(x) < 3 || json.Unmarshal(x[0], &sort) != nil {
			t.Fatalf("%s: %q", path, lines.Text())
		}
		for i := range x {
			_ = json.Unmarshal(x[i], &numbers[i]) // strings stay 0
		}
		if sort == "a" {
			a := allocation{thread: uint32(numbers[1]), before: numbers[2], after: numbers[3], address: numbers[4], size: numbers[5], stack: numbers[6]}
			_ = json.Unmarshal(x[7], &a.api)
			allocs = append(allocs, a)
			continue
		}
		var frames [][3]any
		if err := json.Unmarshal(x[2], &frames); err != nil {
			t.Fatal(err)
		}
		for _, f := range frames {
			stacks[numbers[1]] = append(stacks[numbers[1]], place{function: f[0].(string), file: f[1].(string), line: int(f[2].(float64)), python: true})
		}
	}
	if err := lines.Err(); err != nil || len(allocs) == 0 {
		t.Fatalf("%s: %d allocations, %v", path, len(allocs), err)
	}
	return stacks, allocs
}

func isPython(f *callstack.Frame) bool { return f.Python }

func TestStacksOfRandomPythonProgramsAreRight(t *testing.T) {
	needRoot(t)
	fake := fakecuda.Build(t)
	list := interpreters(t)
	if !*long {
		list = slices.DeleteFunc(list, func(i interpreter) bool { return i.path != "/usr/bin/python3.11" && i.version != "3.13" })
		list = list[:min(len(list), 1)]
	}
	if len(list) == 0 {
		t.Skip("no Python from 3.8 to 3.14 on this machine")
	}
	for _, python := range list {
		t.Run(python.version, func(t *testing.T) {
			s, stacks := walkPython(t, fake, python.path, longer(800, 5000), 2, 25)
			for _, example := range s.examples {
				t.Log(example)
			}
			results.add(t, "stacks, Python "+python.version, fmt.Sprintf("%s calls, %s distinct stacks", thousands(s.total()), thousands(stacks)), s.String())
			if s.bad() > 0 {
				t.Errorf("want none wrong: %v", s)
			}
		})
	}
}

// walkPython attaches to walk.py and compares all stacks.
func walkPython(t *testing.T, fake fakecuda.Dir, python string, walks, threads, depth int) (*score, int) {
	t.Helper()
	env := fake.Env(t, 1, 1<<40)
	file := filepath.Join(t.TempDir(), "truth")
	target := start(t, env, python, filepath.Join(root, "testdata", "accuracy", "walk.py"), file, "1", fmt.Sprint(walks), fmt.Sprint(threads), fmt.Sprint(depth), "0.004")
	target.until("ready")
	session := record(t, env, "-p", fmt.Sprint(target.Process.Pid)).ready()
	target.next()
	target.until("done")
	p := session.stop().played()
	target.next()
	stacks, truth := readPythonTruth(t, file)
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
		s.add(compare(stacks[j.truth.stack], stack, isPython), stacks[j.truth.stack], stack)
	}
	if n := p.snapshot.Stats.NoStack; uint64(s.counts[none]) > n {
		t.Errorf("%d stacks are missing, %d of them counted", s.counts[none], n)
	}
	return s, len(stacks)
}
