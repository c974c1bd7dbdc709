// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/vramprof/vramprof/internal/realtorch"
)

// What several tests use is made once, and ends with the last one.
var shared struct {
	dir      string // "": nothing is in it
	runners  map[string]*runner
	captures map[string]string // of jobs of testdata/remedies, by job and arguments
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, x := range shared.runners {
		x.in.Close()
		x.cmd.Wait()
	}
	if shared.dir != "" {
		os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

// sharedFolder returns the folder of what is shared.
var sharedFolder = sync.OnceValues(func() (dir string, err error) {
	shared.dir, err = os.MkdirTemp("", "vramprof-whatif-")
	return shared.dir, err
})

// binary builds the command once, unless the environment variable VRAMPROF names one.
var binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("VRAMPROF"); path != "" {
		return path, nil
	}
	dir, err := sharedFolder()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "vramprof")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", path, "./cmd/vramprof")
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

// runner is a PyTorch that forks for each job: its import takes most of the time.
type runner struct {
	root  realtorch.Root
	cmd   *exec.Cmd
	in    io.Closer
	asks  *json.Encoder
	tells *json.Decoder
}

// runnerOf returns the runner of a script.
func runnerOf(t *testing.T, script string, args ...string) *runner {
	t.Helper()
	if x := shared.runners[script]; x != nil {
		return x
	}
	root := realtorch.Prepare(t)
	x := &runner{root: root, cmd: root.Command(root.Env(t, 1, gpuMemory), script, args...)}
	x.cmd.Stderr = os.Stderr
	in, err := x.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := x.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	x.in, x.asks, x.tells = in, json.NewEncoder(in), json.NewDecoder(out)
	if shared.runners == nil {
		shared.runners = map[string]*runner{}
	}
	shared.runners[script] = x
	return x
}

// captureRemedied records a job of testdata/remedies for whatif, once; done must be called when its
// job is no longer used.
func captureRemedied(t *testing.T, root realtorch.Root, job string, args ...string) (*Job, string, func()) {
	t.Helper()
	name := strings.Join(append([]string{job}, args...), " ")
	file := shared.captures[name]
	if file == "" {
		dir, err := sharedFolder()
		if err != nil {
			t.Fatal(err)
		}
		env := root.Env(t, 1, gpuMemory)
		file = filepath.Join(dir, strings.ReplaceAll(name, " ", "_")+".vram")
		inner := root.Command(env, remedyScript(job), args...)
		if out, ok := command(t, env, append([]string{"record", "--for", "whatif", "--holders=off", "--no-oom", "-o", file, "--"}, inner.Args...)...); !ok {
			t.Fatal(out)
		}
		if shared.captures == nil {
			shared.captures = map[string]string{}
		}
		shared.captures[name] = file
	}
	jobs, done, err := Files{}.Open(file)
	if err != nil || len(jobs) != 1 || len(jobs[0].Refused) > 0 {
		t.Fatalf("%s: %d jobs, %v %+v", name, len(jobs), err, jobs)
	}
	return jobs[0], file, done
}
