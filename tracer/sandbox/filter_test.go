// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

const testPID = 4242

// decide runs a filter as the kernel does.
func decide(t *testing.T, program []unix.SockFilter, arch, number uint32, args ...uint64) uint32 {
	t.Helper()
	words := [16]uint32{number, arch}
	for i, arg := range args {
		words[4+2*i], words[5+2*i] = uint32(arg), uint32(arg>>32)
	}
	var loaded uint32
	for at := 0; at < len(program); at++ {
		jump := func(condition bool, f unix.SockFilter) {
			if condition {
				at += int(f.Jt)
			} else {
				at += int(f.Jf)
			}
		}
		switch f := program[at]; f.Code {
		case load:
			loaded = words[f.K/4]
		case equal:
			jump(loaded == f.K, f)
		case atLeast:
			jump(loaded >= f.K, f)
		case anyBit:
			jump(loaded&f.K != 0, f)
		case result:
			return f.K
		default:
			t.Fatalf("instruction %d: %+v", at, f)
		}
	}
	t.Fatal("the filter does not end")
	return 0
}

func TestEachDeniedCallIsDenied(t *testing.T) {
	p := program(Needs{}, testPID)
	for _, number := range append(denied, deniedHere...) {
		if got := decide(t, p, auditArch, number); got != deny {
			t.Errorf("call %d: %#x", number, got)
		}
	}
	if len(p) > unix.BPF_MAXINSNS {
		t.Errorf("%d instructions", len(p))
	}
}

func TestNoOtherCallIsDenied(t *testing.T) {
	p := program(Needs{}, testPID)
	special := map[uint32]bool{}
	for _, number := range append(denied, deniedHere...) {
		special[number] = true
	}
	for _, number := range []uint32{unix.SYS_CLONE, unix.SYS_CLONE3, unix.SYS_KILL, unix.SYS_TGKILL, unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_BPF, unix.SYS_OPENAT2, unix.SYS_KCMP, unix.SYS_PIDFD_SEND_SIGNAL} {
		special[number] = true
	}
	for number := range uint32(lastCall + 1) {
		if got := decide(t, p, auditArch, number); !special[number] && got != allow {
			t.Errorf("call %d: %#x", number, got)
		}
	}
}

func TestArgumentsDecide(t *testing.T) {
	const high = 1 << 32 // ignored by the kernel
	for _, c := range []struct {
		name   string
		number uint32
		args   []uint64
		want   uint32
	}{
		{"thread", unix.SYS_CLONE, []uint64{unix.CLONE_THREAD | unix.CLONE_VM}, allow},
		{"child process", unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_VFORK}, deny},
		{"clone3", unix.SYS_CLONE3, nil, unknown},
		{"check for existence", unix.SYS_KILL, []uint64{7, 0}, allow},
		{"go on", unix.SYS_KILL, []uint64{7, uint64(unix.SIGCONT)}, allow},
		{"end", unix.SYS_KILL, []uint64{7, uint64(unix.SIGKILL)}, deny},
		{"end, with more bits", unix.SYS_KILL, []uint64{7, high | uint64(unix.SIGKILL)}, deny},
		{"check for existence of an open process", unix.SYS_PIDFD_SEND_SIGNAL, []uint64{7, 0}, allow},
		{"end an open process", unix.SYS_PIDFD_SEND_SIGNAL, []uint64{7, uint64(unix.SIGKILL)}, deny},
		{"compare open files", unix.SYS_KCMP, []uint64{7, 8, kcmpFile}, deny},
		{"own thread", unix.SYS_TGKILL, []uint64{testPID, 1, uint64(unix.SIGURG)}, allow},
		{"another's thread", unix.SYS_TGKILL, []uint64{testPID + 1, 1, uint64(unix.SIGURG)}, deny},
		{"unix socket", unix.SYS_SOCKET, []uint64{unix.AF_UNIX}, allow},
		{"netlink", unix.SYS_SOCKET, []uint64{unix.AF_NETLINK}, allow},
		{"network", unix.SYS_SOCKET, []uint64{unix.AF_INET}, deny},
		{"network, with more bits", unix.SYS_SOCKET, []uint64{high | unix.AF_INET6}, deny},
		{"vsock pair", unix.SYS_SOCKETPAIR, []uint64{unix.AF_VSOCK}, deny},
		{"driver", unix.SYS_IOCTL, []uint64{3, 0xc020462a}, allow},
		{"typing into a terminal", unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI}, deny},
		{"the same, with more bits", unix.SYS_IOCTL, []uint64{0, high | unix.TIOCSTI}, deny},
		{"map", unix.SYS_BPF, []uint64{unix.BPF_MAP_UPDATE_ELEM}, allow},
		{"link", unix.SYS_BPF, []uint64{unix.BPF_LINK_CREATE}, allow},
		{"pin", unix.SYS_BPF, []uint64{unix.BPF_OBJ_PIN}, deny},
		{"another's map", unix.SYS_BPF, []uint64{unix.BPF_MAP_GET_FD_BY_ID}, deny},
		{"new file", unix.SYS_OPENAT, []uint64{3, 0x1000, unix.O_CREAT | unix.O_WRONLY, 0o644}, allow},
		{"new set-user-ID file", unix.SYS_OPENAT, []uint64{3, 0x1000, unix.O_CREAT | unix.O_WRONLY, 0o4755}, deny},
		{"new set-group-ID file", unix.SYS_OPENAT, []uint64{3, 0x1000, high | unix.O_CREAT, high | 0o2755}, deny},
		{"new set-user-ID file without a name", unix.SYS_OPENAT, []uint64{3, 0x1000, unix.O_TMPFILE | unix.O_RDWR, 0o4755}, deny},
		{"folder, with a random mode", unix.SYS_OPENAT, []uint64{3, 0x1000, unix.O_DIRECTORY, 0o7777}, allow},
		{"file, with a random mode", unix.SYS_OPENAT, []uint64{3, 0x1000, unix.O_RDWR, 0o7777}, allow},
		{"a mode in memory", unix.SYS_OPENAT2, []uint64{3, 0x1000, 0x2000, 24}, unknown},
		{"unknown call", lastCall + 1, nil, unknown},
		{"32-bit ABI of x86-64", 1<<30 | 1, nil, unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := decide(t, program(Needs{}, testPID), auditArch, c.number, c.args...); got != c.want {
				t.Errorf("got %#x, want %#x", got, c.want)
			}
		})
	}
	for needs, want := range map[Needs]uint32{{}: deny, {Programs: true}: allow} {
		if got := decide(t, program(needs, testPID), auditArch, unix.SYS_BPF, unix.BPF_PROG_LOAD); got != want {
			t.Errorf("loading programs with %+v: %#x, want %#x", needs, got, want)
		}
	}
	for _, c := range []struct {
		pid    uint64
		signal unix.Signal
		want   uint32
	}{{0, unix.SIGINT, allow}, {0, unix.SIGTSTP, allow}, {7, unix.SIGINT, deny}, {high | 7, unix.SIGTSTP, deny}, {0, unix.SIGKILL, deny}, {7, unix.SIGCONT, allow}, {7, 0, allow}} {
		args := []uint64{c.pid, uint64(c.signal)}
		if got := decide(t, program(Needs{Terminal: true}, testPID), auditArch, unix.SYS_KILL, args...); got != c.want {
			t.Errorf("kill(%d, %v) with a terminal: %#x, want %#x", c.pid, c.signal, got, c.want)
		}
		if got := decide(t, program(Needs{}, testPID), auditArch, unix.SYS_KILL, args...); c.pid == 0 && got != deny {
			t.Errorf("kill(%d, %v) without: %#x", c.pid, c.signal, got)
		}
	}
	if got := decide(t, program(Needs{}, testPID), unix.AUDIT_ARCH_I386, 1); got != unknown {
		t.Errorf("another architecture: %#x", got)
	}
}

func TestSetsAreBits(t *testing.T) {
	s := NewSet(unix.CAP_BPF, unix.CAP_KILL)
	if fmt.Sprintf("%x", uint64(s)) != "8000000020" || !s.Has(NewSet(unix.CAP_BPF)) || s.Has(NewSet(unix.CAP_BPF, unix.CAP_SYSLOG)) {
		t.Errorf("%x", uint64(s))
	}
}

func TestLoadingNeedsAllOfBPF(t *testing.T) {
	before, after := program(Needs{BPF: true}, testPID), program(Needs{}, testPID)
	for _, command := range []uint64{unix.BPF_PROG_LOAD, unix.BPF_RAW_TRACEPOINT_OPEN, unix.BPF_BTF_LOAD} {
		if got := decide(t, before, auditArch, unix.SYS_BPF, command); got != allow {
			t.Errorf("command %d before tracing: %#x", command, got)
		}
		if got := decide(t, after, auditArch, unix.SYS_BPF, command); got != deny {
			t.Errorf("command %d afterwards: %#x", command, got)
		}
	}
}

func TestOnlyOpenFilesAreCompared(t *testing.T) {
	const memory = 1 // KCMP_VM
	p := program(Needs{Compares: true}, testPID)
	if got := decide(t, p, auditArch, unix.SYS_KCMP, 7, 8, kcmpFile, 3, 4); got != allow {
		t.Errorf("open files: %#x", got)
	}
	if got := decide(t, p, auditArch, unix.SYS_KCMP, 7, 8, memory); got != deny {
		t.Errorf("memory: %#x", got)
	}
}
