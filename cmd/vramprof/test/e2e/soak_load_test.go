// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/internal/realtorch"
)

// soakLoad starts targets of several kinds, each kind one after the other.
type soakLoad struct {
	t      *testing.T
	env    []string
	prefix string // prefix of the names of all targets
	kinds  []soakKind

	mu     sync.Mutex
	now    int
	ran    map[string]int
	faults []string
}

// soakKind is a kind of target: begin creates the next one. A target may end with SIGKILL only if
// the kind says so.
type soakKind struct {
	name   string
	pause  time.Duration // between two
	killed bool
	forks  int // additional processes
	begin  func(ctx context.Context) *exec.Cmd
}

const soakScript = "free0\nmalloc w 1000000\nrepeat 20\nmalloc a 1000\nmanaged m 5000\npinned p 3000\nfree a\nfree m\nfreehost p\nsleep 20\nend\n" +
	"threads 4\nrepeat 200\nmalloc b 100\nfree b\nend\nend\n"

const soakTensors = "random 5 3000 1\nsleep 300\nfree_random 2\nempty_cache\nrandom 9 2000 1\nsleep 300\n"

func newSoakLoad(t *testing.T, dir fakecuda.Dir) *soakLoad {
	t.Helper()
	l := &soakLoad{t: t, ran: map[string]int{}, prefix: fmt.Sprintf("soak%x", time.Now().UnixNano()&0xffff)}
	l.env = dir.Env(t, 1, 64<<30)
	folder := t.TempDir()
	named := func(from, name string) string { return copyFile(t, from, filepath.Join(folder, l.prefix+name)) }
	script := func(text string) string { return writeFile(t, "script", text) }
	// command returns a target with more variables in its environment.
	command := func(env []string, program string, args ...string) func(context.Context) *exec.Cmd {
		return func(ctx context.Context) *exec.Cmd {
			cmd := exec.CommandContext(ctx, program, args...)
			cmd.Env = append(l.env[:len(l.env):len(l.env)], env...)
			cmd.Stdin = bytes.NewReader([]byte("\n\n\n\n"))
			return cmd
		}
	}
	c, storm := named(dir.Program("alloc_c"), "c"), named(dir.Program("storm_c"), "s")
	copyDir(t, dir.Program("site-packages"), filepath.Join(folder, "site-packages"))
	l.kinds = []soakKind{
		{name: "C", begin: command(nil, c, script(soakScript))},
		{name: "C++", begin: command(nil, named(dir.Program("alloc_cpp"), "p"))},
		{name: "Python", begin: command(nil, "/usr/bin/python3", named(dir.Program("leak.py"), "l.py"), "--stdin", "--threads", "2")},
		{name: "Python that trains", begin: command(nil, "/usr/bin/python3", named(dir.Program("train.py"), "t.py"), "--steps", "60", "--step-ms", "20")},
		{name: "fake PyTorch", begin: command([]string{dir.Torch("2.6")}, named(dir.Program("tensors_c"), "x"), script(soakTensors))},
		{name: "forks", pause: 5 * time.Second, forks: 40, begin: command(nil, storm, "forks", "40", "8")},
		{name: "execs", pause: 5 * time.Second, forks: 20, begin: command(nil, storm, "execs", "20", "4")},
		{name: "threads", pause: time.Second, begin: command(nil, storm, "churn", "2000", "20")},
		{name: "out of memory", pause: time.Second, begin: command(nil, c, script("malloc a 1000\nfail 0x4000000000000\nfail 80000000000000\nsleep 200\n"))},
		{name: "exit within calls", begin: command([]string{"FAKECUDA_LATENCY_US=500"}, storm, "within", "exit")},
		{name: "killed", killed: true, begin: command(nil, c, script("free0\nthreads 4\nrepeat 500\nmalloc b 100\nfree b\nend\nend\nmalloc a 100\nkill\n"))},
		l.replaced(dir, c, script(soakScript), command),
	}
	l.addPyTorch()
	for i := range l.kinds {
		l.kinds[i].pause += 2 * time.Second // as many as hours of work would start, rather than as many as the machine can
	}
	return l
}

// replaced returns a program whose CUDA libraries are replaced before each start, as by an upgrade.
func (l *soakLoad) replaced(dir fakecuda.Dir, program, script string, command func([]string, string, ...string) func(context.Context) *exec.Cmd) soakKind {
	libraries := privateLibraries(l.t, dir)
	begin := command([]string{"LD_LIBRARY_PATH=" + libraries}, program, script)
	return soakKind{name: "libraries replaced", begin: func(ctx context.Context) *exec.Cmd {
		for _, name := range []string{"libcuda.so.1", "libcudart.so.12"} {
			path := filepath.Join(libraries, name)
			text, err := os.ReadFile(path)
			if err == nil {
				if err = os.WriteFile(path+".new", text, 0o755); err == nil {
					err = os.Rename(path+".new", path)
				}
			}
			if err != nil {
				l.fault("replace a library: %v", err)
			}
		}
		return begin(ctx)
	}}
}

// addPyTorch adds the real PyTorch if it was prepared.
func (l *soakLoad) addPyTorch() {
	l.t.Run("real PyTorch", func(t *testing.T) {
		root := realtorch.Prepare(t)
		env := append(root.Env(l.t, 1, 16<<30), "PYTHON_COMM="+l.prefix+"r")
		l.kinds = append(l.kinds, soakKind{name: "real PyTorch", pause: 5 * time.Second, begin: func(ctx context.Context) *exec.Cmd {
			plain := root.Command(env, "train.py", "--steps", "150", "--every", "1000", "--sleep", "0.02", "--layers", "2", "--vary")
			cmd := exec.CommandContext(ctx, plain.Path, plain.Args[1:]...)
			cmd.Env = plain.Env
			return cmd
		}})
	})
}

func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

func (l *soakLoad) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.faults) < 20 {
		l.faults = append(l.faults, fmt.Sprintf(format, args...))
	}
}

// run keeps one target of each kind running for length, and waits for the last ones.
func (l *soakLoad) run(length time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	var wait sync.WaitGroup
	for i := range l.kinds {
		kind := &l.kinds[i]
		wait.Go(func() {
			for ctx.Err() == nil {
				l.one(kind)
				pause := kind.pause + time.Duration(rand.Int64N(int64(500*time.Millisecond)))
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
			}
		})
	}
	wait.Wait()
}

// one runs a target until it ends on its own.
func (l *soakLoad) one(kind *soakKind) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := kind.begin(ctx)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	l.mu.Lock()
	l.now++
	l.mu.Unlock()
	err := cmd.Run()
	l.mu.Lock()
	l.now--
	l.ran[kind.name]++
	l.mu.Unlock()
	var exit *exec.ExitError
	if kind.killed && errors.As(err, &exit) && exit.String() == "signal: killed" && ctx.Err() == nil {
		return
	}
	if err != nil || kind.killed {
		l.fault("a target of kind %s: %v\n%s", kind.name, err, stderr.Bytes())
	}
}

func (l *soakLoad) running() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

func (l *soakLoad) counts() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ran
}

// ended counts the processes that have ended, including children.
func (l *soakLoad) ended() (sum int) {
	for i := range l.kinds {
		sum += l.counts()[l.kinds[i].name] * (1 + l.kinds[i].forks)
	}
	return sum
}
