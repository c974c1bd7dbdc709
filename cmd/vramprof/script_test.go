// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/fakecuda"
)

var update = flag.Bool("update", false, "rewrite the files in scripts that cmp compares with")

func TestMain(m *testing.M) {
	testscript.Main(tests{m}, map[string]func(){"vramprof": main, "maplibrary": mapLibrary})
}

// tests runs more scripts in parallel than there are processors, because they mostly wait.
type tests struct{ *testing.M }

func (t tests) Run() int {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == fmt.Sprint(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", "6")
	}
	return t.M.Run()
}

// TestScripts runs testdata/script: command lines and their results.
func TestScripts(t *testing.T) { runScripts(t, "testdata/script") }

// TestScriptsAlone runs the scripts that need a machine without any other CUDA process or tracer.
func TestScriptsAlone(t *testing.T) { runScripts(t, "testdata/script/alone") }

func runScripts(t *testing.T, dir string) {
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		Setup:               setup,
		Condition:           condition,
		Cmds:                scriptCommands,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
	})
}

// setup gives a script a simulated machine with two GPUs of 8 GiB, and the
// programs that use them.
func setup(env *testscript.Env) error {
	p := &programs{t: env.T(), running: map[string]*testProgram{}}
	env.Values[programsKey{}] = p
	env.Defer(p.killAll)
	if haveCompilers() {
		t := env.T().(testing.TB)
		dir := fakecuda.Build(t)
		env.Setenv("PATH", string(dir)+":"+env.Getenv("PATH"))
		for _, v := range dir.Env(t, 2, 8<<30) {
			name, value, _ := strings.Cut(v, "=")
			if name == "LD_LIBRARY_PATH" || strings.HasPrefix(name, "FAKECUDA_") {
				env.Setenv(name, value)
			}
		}
	}
	names := map[string]bool{}
	for _, v := range append(env.Vars, "COLUMNS=", "NO_COLOR=", "TERM=") {
		name, _, _ := strings.Cut(v, "=")
		names[name] = true
	}
	p.names = slices.Sorted(maps.Keys(names))
	return forEverybody(env.WorkDir)
}

// forEverybody lets other users reach the command and the script's folder.
func forEverybody(work string) error {
	binary, err := exec.LookPath("vramprof")
	if err != nil {
		return err
	}
	for _, dir := range []string{filepath.Dir(filepath.Dir(binary)), filepath.Dir(work), work} {
		if err := os.Chmod(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func haveCompilers() bool {
	for _, tool := range []string{"bash", "gcc", "g++"} {
		if _, err := exec.LookPath(tool); err != nil {
			return false
		}
	}
	return true
}

// condition: [root] may trace; [fakecuda] has the programs that use CUDA; [numa] knows NUMA nodes;
// [devices] may make device files that can be opened.
func condition(name string) (bool, error) {
	switch name {
	case "root":
		return os.Geteuid() == 0, nil
	case "fakecuda":
		return haveCompilers(), nil
	case "numa":
		_, err := os.Stat("/proc/self/numa_maps")
		return err == nil, nil
	case "devices":
		path := filepath.Join(os.TempDir(), fmt.Sprintf("vramprof-test-device-%d", os.Getpid()))
		defer os.Remove(path)
		if unix.Mknod(path, unix.S_IFCHR|0o600, zeroDevice) != nil {
			return false, nil
		}
		f, err := os.Open(path)
		if err == nil {
			f.Close()
		}
		return err == nil, nil
	}
	return false, fmt.Errorf("there is no condition %q", name)
}

var zeroDevice = int(unix.Mkdev(1, 5)) // /dev/zero
