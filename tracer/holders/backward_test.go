// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/holders/peek"
	"github.com/vramprof/vramprof/tracer/holders/pythontest"
)

// TestBackwardThatRuns: the gradient that waits for its turn belongs to no object of Python.
// VRAMPROF_BACKWARD is how many processes it reads, each in 20 backward passes; by default one in
// 4.
func TestBackwardThatRuns(t *testing.T) {
	processes, passes := 1, 4
	if n, err := strconv.Atoi(os.Getenv("VRAMPROF_BACKWARD")); err == nil {
		processes, passes = n, 20
	}
	script, err := filepath.Abs("../../testdata/holders/backward.py")
	if err != nil {
		t.Fatal(err)
	}
	for name, command := range torches(t) {
		t.Run(name, func(t *testing.T) {
			wrong := 0
			for n := range processes {
				wrong += walkBackward(t, command(script, fmt.Sprint(passes)), passes)
				t.Logf("%d of %d walks name a wrong holder of the gradient", wrong, (n+1)*passes)
			}
			if wrong > 0 {
				t.Error("want none")
			}
		})
	}
}

// walkBackward walks a process in each of its backward passes, and returns how often the gradient
// has another holder than the running step.
func walkBackward(t *testing.T, cmd *exec.Cmd, passes int) (wrong int) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var complaints strings.Builder
	cmd.Stderr = &complaints
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	}()
	lines := bufio.NewReader(out)
	for range passes {
		if line, _ := lines.ReadString('\n'); !strings.HasPrefix(line, "ready") {
			t.Fatalf("the job printed %q\n%s", line, complaints.String())
		}
		pythontest.AwaitInput(cmd.Process.Pid)
		p, err := peek.Open(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Walk(context.Background(), p, Options{Host: true})
		p.Close()
		if err != nil {
			t.Fatal(err)
		}
		if !isBackward(t, r) {
			wrong++
		}
		if _, err := in.Write([]byte("\n")); err != nil {
			t.Fatal(err)
		}
	}
	return wrong
}

// isBackward reports whether the gradient of 28,000 bytes is in use by the running step, and checks
// that the other tensors of the step have a holder. Of PyTorch 2.14, small ones that were freed
// before are in the result.
func isBackward(t *testing.T, r *Result) bool {
	t.Helper()
	waiting := 0
	for _, s := range r.Storages {
		switch kind := s.Holder.Root().Kind; {
		case kind == RootNone && s.Bytes < 20000:
			t.Logf("%d bytes: %s", s.Bytes, s.Holder)
		case kind == RootNone:
			t.Errorf("%d bytes: %s", s.Bytes, s.Holder)
		case kind == RootNative && s.Bytes == 28000 && s.Holder.String() == inUse:
			waiting++
		case kind == RootNative:
			t.Logf("%d bytes: %s", s.Bytes, s.Holder)
		}
	}
	if waiting == 1 {
		return true
	}
	t.Logf("%d gradients wait, want 1 (%q)", waiting, r.Problems)
	for _, s := range r.Storages {
		t.Logf("%#x: %d bytes, device type %d, moving %v: %s", s.Address, s.Bytes, s.DeviceType, s.InMotion, s.Holder)
	}
	return false
}
