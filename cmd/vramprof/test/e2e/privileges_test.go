// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/fakecuda"
)

// capability is a capability's number and name.
type capability struct {
	number uintptr
	name   string
}

// documented lists the capabilities with which, according to the README, an ordinary user can trace
// on Linux 6.6 and newer.
var documented = []capability{
	{unix.CAP_BPF, "CAP_BPF"}, {unix.CAP_PERFMON, "CAP_PERFMON"}, {unix.CAP_CHECKPOINT_RESTORE, "CAP_CHECKPOINT_RESTORE"},
	{unix.CAP_SYS_PTRACE, "CAP_SYS_PTRACE"}, {unix.CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"}, {unix.CAP_KILL, "CAP_KILL"},
}

// ordinary is a user who owns no file of the tests.
const ordinary = 65534

// ordinaryUser prepares a folder with the program that an ordinary user can write to, and a machine
// that the user can access.
func ordinaryUser(t *testing.T, dir fakecuda.Dir) (folder string, env []string) {
	t.Helper()
	needMulti(t)
	folder, err := os.MkdirTemp("", "vramprof-ordinary-") // the parents of t.TempDir are not accessible
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	copyFile(t, binary(t), filepath.Join(folder, "vramprof"))
	env = dir.Env(t, 1, 8<<30)
	for _, path := range []string{folder, machineOf(env)} {
		if err := errors.Join(os.Chmod(path, 0o755), os.Chown(path, ordinary, ordinary)); err != nil {
			t.Fatal(err)
		}
	}
	return folder, env
}

func machineOf(env []string) (path string) {
	for _, v := range env {
		if value, ok := strings.CutPrefix(v, "FAKECUDA_SHM="); ok {
			path = value
		}
	}
	return path
}

// needMulti skips tests of an ordinary user on kernels before Linux 6.6.
func needMulti(t *testing.T) {
	t.Helper()
	var name unix.Utsname
	var major, minor int
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor); err != nil || major < 6 || major == 6 && minor < 6 {
		t.Skip("without uprobe_multi, CAP_SYS_ADMIN is needed")
	}
}

// asOrdinary starts vramprof as an ordinary user with only these capabilities.
func asOrdinary(t *testing.T, folder string, env []string, capabilities []capability, args ...string) *session {
	t.Helper()
	s := &session{t: t, cmd: exec.Command(filepath.Join(folder, "vramprof"), append([]string{args[0], "-v"}, args[1:]...)...), done: make(chan error, 1)}
	s.cmd.Env, s.cmd.Stdout, s.cmd.Stderr, s.cmd.Dir = env, &s.stdout, &s.stderr, folder
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinary, Gid: ordinary}}
	for _, c := range capabilities {
		s.cmd.SysProcAttr.AmbientCaps = append(s.cmd.SysProcAttr.AmbientCaps, c.number)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.done <- s.cmd.Wait() }()
	t.Cleanup(func() {
		s.cmd.Process.Kill()
		if t.Failed() {
			t.Logf("vramprof said:\n%s", s.stderr.timed)
		}
	})
	return s
}

func TestOrdinaryUserWithCapabilitiesTracesACommand(t *testing.T) {
	dir := setup(t)
	folder, env := ordinaryUser(t, dir)
	s := asOrdinary(t, folder, env, documented, "record", "-o", "p.pb.gz", "--", dir.Program("alloc_c"), writeFile(t, "script", everyOperation)).wait()
	s.path = filepath.Join(folder, "p.pb.gz")
	booksOf(t, s.profile()).compare(t, everyOperationBooks("cuda:0"))
}

func TestOrdinaryUserWithCapabilitiesAttachesToRootsProcess(t *testing.T) {
	dir := setup(t)
	folder, env := ordinaryUser(t, dir)
	program := startTarget(t, env, dir.Program("alloc_c"), writeFile(t, "script", containerScript))
	program.expectReady()
	l := asOrdinary(t, folder, env, documented, "leaks", "--json", "-p", fmt.Sprint(program.pid())).ready()
	program.next()
	program.expect("done")
	r := l.stop().leaks()
	program.end()
	checkNoLosses(t, r)
	if b := balance(t, r); b.LiveBytes != 2000 || b.BaselineBytes != 300*mib {
		t.Errorf("balance %+v, want 2000 bytes live on a context", b)
	}
}

func TestEachMissingCapabilityIsNamed(t *testing.T) {
	dir := setup(t)
	folder, env := ordinaryUser(t, dir)
	for i, c := range documented {
		rest := slices.Delete(slices.Clone(documented), i, i+1)
		if c.number == unix.CAP_KILL { // tracing partly works
			s := asOrdinary(t, folder, env, rest, "leaks", "--json", "--", dir.Program("alloc_c"), writeFile(t, "script", "sleep 1\n")).wait()
			if r := s.leaks(); !strings.Contains(strings.Join(append(r.Warnings, r.Notes...), "\n"), c.name) {
				t.Errorf("without %s: warnings %q", c.name, r.Warnings)
			}
			continue
		}
		s := asOrdinary(t, folder, env, rest, "record", "--", "true")
		var exit *exec.ExitError
		if err := <-s.done; !errors.As(err, &exit) || exit.ExitCode() != 4 {
			t.Errorf("without %s: %v, want exit status 4", c.name, err)
		}
		if text := s.stderr.String(); !strings.Contains(text, fmt.Sprintf("user %d lacks %s ", ordinary, c.name)) || strings.Count(text, "CAP_") != 2 {
			t.Errorf("without %s: %q", c.name, text)
		}
	}
}

// The capabilities of a Docker container plus those that the README adds, without CAP_SYS_RESOURCE
// and CAP_SYS_ADMIN.
const inContainer = `
set -e
mount --make-rprivate /
mount -t tmpfs none "$1"
cd "$1"
for d in usr bin lib lib64 etc dev proc sys "$2" "$3" "$4"; do
	[ -e "/$d" ] || continue
	mkdir -p "./$d"
	mount --rbind "/$d" "./$d"
done
mkdir -p old tmp
pivot_root . old
cd /
umount -l old
shift 4
exec setpriv --bounding-set=-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,+net_bind_service,+net_raw,+sys_chroot,+mknod,+audit_write,+setfcap,+bpf,+perfmon,+checkpoint_restore,+sys_ptrace,+dac_read_search "$@"
`

func TestRootInContainerWithHostsProcessesTraces(t *testing.T) {
	dir := setup(t)
	needMulti(t)
	env := append(dir.Env(t, 1, 8<<30), "LD_LIBRARY_PATH="+privateLibraries(t, dir))
	program := startTarget(t, env, dir.Program("alloc_c"), writeFile(t, "script", containerScript))
	program.expectReady()
	nvml, out := privateLibraries(t, dir), t.TempDir() // the target's libraries are not in the container
	path := filepath.Join(out, "p.pb.gz")
	cmd := exec.Command("unshare", "--mount", "--uts", "--ipc", "--net", "--cgroup", "sh", "-c", inContainer, "sh", t.TempDir(),
		filepath.Dir(binary(t)), nvml, out, binary(t), "record", "-v", "-o", path, "-p", fmt.Sprint(program.pid()))
	s := &session{t: t, cmd: cmd, done: make(chan error, 1), path: path}
	cmd.Env, cmd.Stdout, cmd.Stderr = append(env, "LD_LIBRARY_PATH="+nvml), &s.stdout, &s.stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.done <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Kill()
		if t.Failed() {
			t.Logf("vramprof said:\n%s", s.stderr.timed)
		}
	})
	s.ready()
	if root, err := os.ReadDir(fmt.Sprintf("/proc/%d/root", cmd.Process.Pid)); err != nil || slices.ContainsFunc(root, func(e os.DirEntry) bool { return e.Name() == "root" }) {
		t.Errorf("the process has no separate root: %v %v", root, err)
	}
	program.next()
	program.expect("done")
	p := s.stop().profile()
	program.end()
	booksOf(t, p).compare(t, containerBooks())
}

// denyCall is the first argument with which the test program denies itself a system call and
// executes another program.
const denyCall = "deny-system-call" // NUMBER PROGRAM ARGUMENTS

func init() {
	if len(os.Args) > 3 && os.Args[1] == denyCall {
		fmt.Fprintln(os.Stderr, becomeDenied(os.Args[2], os.Args[3:]))
		os.Exit(127)
	}
}

func becomeDenied(number string, args []string) error {
	var call uint32
	if _, err := fmt.Sscan(number, &call); err != nil {
		return err
	}
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	return errors.Join(setFilter(program), syscall.Exec(args[0], args, os.Environ()))
}

func TestSeccompFilterThatForbidsACallIsNamed(t *testing.T) {
	setup(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, number := range map[string]int{
		"bpf": unix.SYS_BPF, "perf_event_open": unix.SYS_PERF_EVENT_OPEN, "process_vm_readv": unix.SYS_PROCESS_VM_READV,
	} {
		cmd := exec.Command(self, denyCall, fmt.Sprint(number), binary(t), "check")
		cmd.Env = append(os.Environ(), "COLUMNS=1000")
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		var exit *exec.ExitError
		if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 4 {
			t.Errorf("%s: %v, want exit status 4", name, err)
		}
		if want := "a seccomp filter forbids " + name + ": operation not permitted\n"; !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "seccomp=unconfined") {
			t.Errorf("%s: %s", name, out.String())
		}
	}
}
