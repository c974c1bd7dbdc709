// SPDX-License-Identifier: Apache-2.0

package confine

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The test program runs itself with one of these arguments: what it does to itself it cannot undo.
const (
	confined = "confine-yourself"
	hanging  = "confine-yourself-while-a-thread-hangs"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == confined {
		confineYourself()
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[1] == hanging {
		confineHanging()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// kept by confineYourself.
var kept = Of(unix.CAP_BPF, unix.CAP_KILL)

// printThreads prints what each thread has.
func printThreads() {
	statuses, _ := filepath.Glob("/proc/self/task/*/status")
	for _, path := range statuses {
		text, _ := os.ReadFile(path)
		fmt.Print("thread")
		for line := range strings.Lines(string(text)) {
			if key, value, _ := strings.Cut(line, ":\t"); strings.HasPrefix(key, "Cap") || key == "NoNewPrivs" || key == "Seccomp" {
				fmt.Print(" ", key, "=", strings.TrimSpace(value))
			}
		}
		fmt.Println()
	}
}

// confineYourself prints what its threads have, and what still works.
func confineYourself() {
	const threads = 8
	stay, there := make(chan bool), make(chan bool)
	wait := func() {
		runtime.LockOSThread()
		there <- true
		<-stay
	}
	for range threads {
		go wait()
		<-there
	}
	if err := Process(Needs{Capabilities: kept}); err != nil {
		fmt.Println("error", err)
		return
	}
	for range threads { // threads that begin later
		go wait()
		<-there
	}
	printThreads()
	for name, try := range map[string]func() error{
		"program": func() error { return exec.Command("/bin/true").Run() },
		"network": func() error { _, err := net.Listen("tcp", "127.0.0.1:0"); return err },
		"ptrace":  func() error { return unix.PtraceSeize(os.Getppid()) },
		"signal":  func() error { return unix.Kill(os.Getppid(), unix.SIGWINCH) },
		"mount":   func() error { return unix.Unshare(unix.CLONE_NEWUSER) },
		"ask":     func() error { return unix.Kill(os.Getppid(), 0) },
		"file":    func() error { return os.WriteFile(os.DevNull, []byte("x"), 0) },
		"more":    func() error { return filter(Needs{}) },
	} {
		err := try()
		fmt.Println(name, errors.Is(err, unix.EPERM), err == nil)
	}
}

func TestEveryThreadIsConfinedAndTheRestWorks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has something to give up")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, confined)
	cmd.SysProcAttr = &syscall.SysProcAttr{AmbientCaps: []uintptr{unix.CAP_BPF}} // which must be inheritable, too
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	threads := 0
	want := map[string]string{
		"program": "true false", "network": "true false", "ptrace": "true false", "signal": "true false", "mount": "true false",
		"ask": "false true", "file": "false true", "more": "false true",
	}
	for s := bufio.NewScanner(strings.NewReader(string(out))); s.Scan(); {
		what, rest, _ := strings.Cut(s.Text(), " ")
		if what == "thread" {
			threads++
			if rest != wanted {
				t.Errorf("a thread has %s, want %s", rest, wanted)
			}
			continue
		}
		if rest != want[what] {
			t.Errorf("%s: refused and done %s, want %s", what, rest, want[what])
		}
		delete(want, what)
	}
	if threads < 16 || len(want) > 0 {
		t.Errorf("%d threads, not told of: %v\n%s", threads, want, out)
	}
}

// wanted is what each confined thread has.
var wanted = func() string {
	none := fmt.Sprintf("%016x", 0)
	all := fmt.Sprintf("%016x", uint64(kept))
	return fmt.Sprintf("CapInh=%s CapPrm=%s CapEff=%s CapBnd=%s CapAmb=%s NoNewPrivs=1 Seccomp=2", none, all, all, none, none)
}()

func TestCanWriteAsksAsIfTheCapabilityWereGone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has the capability")
	}
	before, err := Held()
	if err != nil {
		t.Fatal(err)
	}
	without := Of(unix.CAP_DAC_OVERRIDE)
	own, foreign := t.TempDir(), t.TempDir()
	if err := os.Chown(foreign, 1000, 1000); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]bool{own: true, foreign: false, "/nonexistent": false} {
		if got := CanWrite(dir, without); got != want {
			t.Errorf("%s: %t, want %t", dir, got, want)
		}
	}
	if !CanWrite(foreign, 0) {
		t.Error("with all capabilities the folder of another cannot be written")
	}
	if after, err := Held(); err != nil || after != before {
		t.Errorf("capabilities %x, before %x, %v", uint64(after), uint64(before), err)
	}
}
