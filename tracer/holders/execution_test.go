// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/holders/peek"
	"github.com/vramprof/vramprof/tracer/holders/pythontest"
)

// TestAnExecIsNoticed: the same program starts itself again in the same process, at the same
// addresses.
func TestAnExecIsNoticed(t *testing.T) {
	const job = `import os, sys
print("ready", flush=True)
sys.stdin.readline()
os.execv(sys.executable, [sys.executable] + %s)`
	again := `["-c", "import sys; print('again', flush=True); sys.stdin.read()"]`
	cmd := exec.Command("setarch", "-R", pythontest.Program(t), "-c", fmt.Sprintf(job, again))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	defer func() {
		in.Close()
		cmd.Wait()
	}()
	lines := bufio.NewReader(out)
	if line, _ := lines.ReadString('\n'); line != "ready\n" {
		t.Skipf("the job printed %q", line)
	}
	p, err := peek.Open(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	first, second := p.Execution(), p.Execution()
	if first == (peek.Execution{}) || first != second {
		t.Fatalf("one program is %x and %x", first, second)
	}
	io.WriteString(in, "\n")
	if line, _ := lines.ReadString('\n'); strings.TrimSpace(line) != "again" {
		t.Fatalf("the job printed %q", line)
	}
	later := p.Execution()
	if before, after := (&Result{Execution: first}), (&Result{Execution: later}); before.SameProgram(after) || !before.SameProgram(&Result{}) {
		t.Errorf("after an exec %x became %x", first, later)
	}
}
