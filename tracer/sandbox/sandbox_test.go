// SPDX-License-Identifier: Apache-2.0

package sandbox

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

// The test program runs itself with one of these arguments, because a process cannot undo its
// confinement.
const (
	confined = "confine-yourself"
	hanging  = "confine-yourself-while-a-thread-hangs"
	trying   = "try-what-stays-possible"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == confined {
		confineYourself()
		os.Exit(0)
	}
	if len(os.Args) == 4 && os.Args[1] == trying {
		tryWhatStays(os.Args[2], os.Args[3])
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[1] == hanging {
		confineHanging()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// kept by confineYourself.
var kept = NewSet(unix.CAP_BPF, unix.CAP_KILL)

// printThreads prints the capabilities and restrictions of each thread.
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

// confineYourself confines the process, prints its threads' state, and tries calls that must still
// work.
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
	for range threads { // threads created later
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

func TestEveryThreadIsConfined(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, confined)
	cmd.SysProcAttr = &syscall.SysProcAttr{AmbientCaps: []uintptr{unix.CAP_BPF}} // ambient capabilities must be inheritable too
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
			t.Errorf("%s: denied and allowed %s, want %s", what, rest, want[what])
		}
		delete(want, what)
	}
	if threads < 16 || len(want) > 0 {
		t.Errorf("%d threads, not listed: %v\n%s", threads, want, out)
	}
}

// wanted is the state of each confined thread.
var wanted = func() string {
	none := fmt.Sprintf("%016x", 0)
	all := fmt.Sprintf("%016x", uint64(kept))
	return fmt.Sprintf("CapInh=%s CapPrm=%s CapEff=%s CapBnd=%s CapAmb=%s NoNewPrivs=1 Seccomp=2", none, all, all, none, none)
}()

func TestCanWriteIgnoresTheCapability(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	before, err := Effective()
	if err != nil {
		t.Fatal(err)
	}
	without := NewSet(unix.CAP_DAC_OVERRIDE)
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
		t.Error("with all capabilities, another user's folder is not writable")
	}
	if after, err := Effective(); err != nil || after != before {
		t.Errorf("capabilities %x, before %x, %v", uint64(after), uint64(before), err)
	}
}

// tracing are the capabilities that stay while vramprof traces.
var tracing = []int{unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_CHECKPOINT_RESTORE, unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH, unix.CAP_IPC_LOCK}

// tryWhatStays confines the process as a tracer, and prints which attacks on root succeed, with a
// process of root's and a folder of this user's.
func tryWhatStays(pid, folder string) {
	if err := Process(Needs{Capabilities: NewSet(tracing...)}); err != nil {
		fmt.Println("error", err)
		return
	}
	open := func(path string, flags int, mode uint32) error {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, mode)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
	const create = unix.O_CREAT | unix.O_WRONLY
	for _, x := range []struct {
		name string
		try  func() error
	}{
		{"read memory", func() error { return open("/proc/"+pid+"/mem", unix.O_RDONLY, 0) }},
		{"write memory", func() error { return open("/proc/"+pid+"/mem", unix.O_RDWR, 0) }},
		{"write through root", func() error { return open("/proc/"+pid+"/root"+folder+"/roots", unix.O_WRONLY, 0) }},
		{"create through cwd", func() error { return open("/proc/"+pid+"/cwd/new", create, 0o644) }},
		{"connect", func() error { _, err := net.Dial("unix", folder+"/socket"); return err }},
		{"new file", func() error { return open(folder+"/own/file", create, 0o755) }},
		{"set-user-ID file", func() error { return open(folder+"/own/setuid", create, 0o4755) }},
		{"set-group-ID file", func() error { return open(folder+"/own/setgid", create, 0o2755) }},
		{"set-user-ID file, openat2", func() error {
			_, err := unix.Openat2(unix.AT_FDCWD, folder+"/own/setuid2", &unix.OpenHow{Flags: create, Mode: 0o4755})
			return err
		}},
		{"chmod", func() error { return unix.Chmod(folder+"/own", 0o4755) }},
	} {
		if x.try() == nil {
			fmt.Println(x.name)
		}
	}
}

// An attacker who takes over a tracer has what stays, see SECURITY.md: as root it can write
// root's files and processes, as the user of the service it cannot.
func TestWhatATracerCanStillDoToRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	const service = 65534
	for user, want := range map[uint32]string{
		0:       "read memory\nwrite memory\nwrite through root\ncreate through cwd\nnew file\n",
		service: "read memory\nnew file\n",
	} {
		folder, err := os.MkdirTemp("", "vramprof-confine") // another user must reach it
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(folder) })
		own := folder + "/own"
		socket, err := net.Listen("unix", folder+"/socket")
		if err = errors.Join(err, os.Chmod(folder, 0o755), os.Mkdir(own, 0o755), os.Chown(own, int(user), -1), os.WriteFile(folder+"/roots", nil, 0o644)); err != nil {
			t.Fatal(err)
		}
		defer socket.Close()
		if err := os.Chmod(folder+"/socket", 0o666); err != nil {
			t.Fatal(err)
		}
		victim := exec.Command("sleep", "1000")
		victim.Dir = folder
		if err := victim.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { victim.Process.Kill(); victim.Wait() })
		cmd := exec.Command("/proc/self/exe", trying, fmt.Sprint(victim.Process.Pid), folder)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
		for _, c := range tracing {
			cmd.SysProcAttr.AmbientCaps = append(cmd.SysProcAttr.AmbientCaps, uintptr(c))
		}
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != want {
			t.Errorf("user %d: %v, can\n%swant\n%s", user, err, out, want)
		}
	}
}
