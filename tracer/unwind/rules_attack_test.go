// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// libraryOf builds a library whose function has n rules that no other library has.
func libraryOf(t *testing.T, folder string, first, n int) string {
	t.Helper()
	var text strings.Builder
	text.WriteString(".text\n.cfi_startproc\n")
	for i := range n {
		fmt.Fprintf(&text, ".cfi_def_cfa_offset %d\nnop\n", 1<<16+64*(first+i))
	}
	text.WriteString(".cfi_endproc\n")
	source, path := filepath.Join(folder, fmt.Sprint(first, ".s")), filepath.Join(folder, fmt.Sprintf("lib%d.so", first))
	if err := os.WriteFile(source, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-shared", "-nostdlib", "-o", path, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// mapping starts a program of a user that maps a library.
func mapping(t *testing.T, user uint32, library string) (pid uint32) {
	t.Helper()
	program := exec.Command("/usr/bin/python3", "-c", "import ctypes, sys\nctypes.CDLL(sys.argv[1])\nprint(1, flush=True)\nsys.stdin.read()", library)
	program.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	in, err := program.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); program.Wait() })
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return uint32(program.Process.Pid)
}

// Three processes of a user map a library each that has 7,000 rules. A program of another user that
// is loaded after them has all of its tables.
func TestProcessesWithManyRulesLeaveAnotherUserItsTables(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("BPF maps need root")
	}
	folder, err := os.MkdirTemp("", "vramprof-rules") // another user must be able to read it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	honest := mapping(t, 65533, libraryOf(t, folder, 1<<20, 3000))
	want := tablesOf(t, nil, honest)

	u := newUnwinder(t, nil)
	var attackers []uint32
	for i := range 3 {
		attackers = append(attackers, mapping(t, 65534, libraryOf(t, folder, i*7000, 7000)))
		u.Load(attackers[i], 0)
	}
	if list := u.Problems(); len(list) != 1 || !strings.Contains(list[0], fmt.Sprintf("stacks of process %d are truncated", attackers[2])) {
		t.Errorf("problems %q", list)
	}
	if n := u.Sizes().Rules; n < 14000 {
		t.Errorf("the attackers have %d rules", n)
	}
	u.Load(honest, 0)
	got := tablesIn(t, u)
	for at, text := range want {
		if got[at] != text {
			t.Errorf("page %x of file %x of the honest process has no table, or another one", at.address, at.file)
		}
	}
}
