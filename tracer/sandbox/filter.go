// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// denied lists calls that always fail with EPERM. deniedHere has those of one architecture.
var denied = []uint32{
	// Other programs and identities.
	unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_SETUID, unix.SYS_SETGID, unix.SYS_SETREUID, unix.SYS_SETREGID,
	unix.SYS_SETRESUID, unix.SYS_SETRESGID, unix.SYS_SETFSUID, unix.SYS_SETFSGID, unix.SYS_SETGROUPS,
	unix.SYS_PERSONALITY, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL,
	// Other processes: vramprof reads them and never changes them.
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE, unix.SYS_PROCESS_MRELEASE, unix.SYS_MIGRATE_PAGES,
	unix.SYS_MOVE_PAGES, unix.SYS_PIDFD_GETFD, unix.SYS_TKILL,
	unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO,
	// Mounts and namespaces, and ways around them: open_by_handle_at opens files by number.
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT,
	unix.SYS_FSPICK, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR, unix.SYS_MOUNT_SETATTR, unix.SYS_SETNS,
	unix.SYS_UNSHARE, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_FANOTIFY_INIT,
	// Owners, modes and attributes of files, and special files.
	unix.SYS_FCHOWN, unix.SYS_FCHOWNAT, unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2, unix.SYS_MKNODAT,
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_SETXATTRAT, unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR,
	unix.SYS_FREMOVEXATTR, unix.SYS_REMOVEXATTRAT, unix.SYS_FILE_SETATTR,
	// Sockets: those of vramprof serve are open by now, and those of other programs may belong to
	// root.
	unix.SYS_LISTEN, unix.SYS_CONNECT,
	// The machine.
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_REBOOT,
	unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_ADJTIMEX, unix.SYS_CLOCK_ADJTIME,
	unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_NFSSERVCTL,
	unix.SYS_VHANGUP, unix.SYS_SYSLOG,
	// Kernel subsystems with many past vulnerabilities.
	unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
}

// bpfCommands lists what later attaches need: maps, links and iterators.
var bpfCommands = []uint32{
	unix.BPF_MAP_CREATE, unix.BPF_MAP_LOOKUP_ELEM, unix.BPF_MAP_UPDATE_ELEM, unix.BPF_MAP_DELETE_ELEM, unix.BPF_MAP_GET_NEXT_KEY,
	unix.BPF_OBJ_GET_INFO_BY_FD, unix.BPF_MAP_LOOKUP_AND_DELETE_ELEM, unix.BPF_MAP_FREEZE, unix.BPF_MAP_LOOKUP_BATCH,
	unix.BPF_MAP_LOOKUP_AND_DELETE_BATCH, unix.BPF_MAP_UPDATE_BATCH, unix.BPF_MAP_DELETE_BATCH, unix.BPF_LINK_CREATE,
	unix.BPF_LINK_DETACH, unix.BPF_ITER_CREATE,
}

// Offsets in struct seccomp_data on little-endian machines. Only the lower half of an argument is
// compared: the kernel reads these arguments as 32-bit numbers, except the flags of clone, where
// only the lower bits matter.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16
)

// assembler builds a classic BPF program in which each rule returns or falls through to the next.
type assembler []unix.SockFilter

const (
	load    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	equal   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	atLeast = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	anyBit  = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	result  = unix.BPF_RET | unix.BPF_K
	allow   = uint32(unix.SECCOMP_RET_ALLOW)
	deny    = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.EPERM)
	unknown = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.ENOSYS)
)

func (a *assembler) add(code uint16, k uint32, yes, no uint8) {
	*a = append(*a, unix.SockFilter{Code: code, Jt: yes, Jf: no, K: k})
}

func (a *assembler) loadNumber()      { a.add(load, offsetNumber, 0, 0) }
func (a *assembler) loadArg(i uint32) { a.add(load, offsetArgs+8*i, 0, 0) }

// is returns then if the loaded value is k.
func (a *assembler) is(k, then uint32) {
	a.add(equal, k, 0, 1)
	a.add(result, then, 0, 0)
}

// call adds rules for one system call; the rules must return. The call number is loaded before and
// after.
func (a *assembler) call(number uint32, rules func()) {
	at := len(*a)
	a.add(equal, number, 0, 0)
	rules()
	(*a)[at].Jf = uint8(len(*a) - at - 1) // at most 255, as the tests show
}

// oneOf allows the call if argument i is in list.
func (a *assembler) oneOf(number, i uint32, list ...uint32) {
	a.call(number, func() {
		a.loadArg(i)
		for _, k := range list {
			a.is(k, allow)
		}
		a.add(result, deny, 0, 0)
	})
}

// withoutSetID denies a call that creates a file with the bits set-user-ID or set-group-ID. Its
// flags are argument i, and the mode is the next one, which is random without O_CREAT.
func (a *assembler) withoutSetID(number, i uint32) {
	a.call(number, func() {
		a.loadArg(i)
		a.add(anyBit, unix.O_CREAT|unix.O_TMPFILE&^unix.O_DIRECTORY, 1, 0)
		a.add(result, allow, 0, 0)
		a.loadArg(i + 1)
		a.add(anyBit, unix.S_ISUID|unix.S_ISGID, 0, 1)
		a.add(result, deny, 0, 0)
		a.add(result, allow, 0, 0)
	})
}

// program returns the filter for a process.
func program(needs Needs, pid int) []unix.SockFilter {
	var a assembler
	a.add(load, offsetArch, 0, 0)
	a.add(equal, auditArch, 1, 0)
	a.add(result, unknown, 0, 0)
	a.loadNumber()
	// Calls newer than lastCall are unknown, so they fail with ENOSYS; callers have fallbacks.
	// Calls of x86-64's 32-bit ABI have even higher numbers.
	a.add(atLeast, lastCall+1, 0, 1)
	a.add(result, unknown, 0, 0)
	for _, number := range append(denied, deniedHere...) {
		a.is(number, deny)
	}
	// Allow threads but no processes. The flags of clone3 are in memory, which a filter cannot
	// read; C libraries fall back to clone.
	a.is(unix.SYS_CLONE3, unknown)
	a.call(unix.SYS_CLONE, func() {
		a.loadArg(0)
		a.add(anyBit, unix.CLONE_THREAD, 0, 1)
		a.add(result, allow, 0, 0)
		a.add(result, deny, 0, 0)
	})
	a.call(unix.SYS_KILL, func() {
		a.loadArg(1)
		a.is(0, allow) // check for existence
		a.is(uint32(unix.SIGCONT), allow)
		if needs.Terminal {
			a.add(equal, uint32(unix.SIGINT), 1, 0)
			a.add(equal, uint32(unix.SIGTSTP), 0, 3)
			a.loadArg(0)
			a.is(0, allow) // its own process group
		}
		a.add(result, deny, 0, 0)
	})
	a.oneOf(unix.SYS_PIDFD_SEND_SIGNAL, 1, 0) // check for existence
	if needs.Compares {
		a.oneOf(unix.SYS_KCMP, 2, kcmpFile)
	} else {
		a.is(unix.SYS_KCMP, deny)
	}
	// Files that run as this user whoever starts them. The mode of openat2 is in memory, which a
	// filter cannot read.
	a.is(unix.SYS_OPENAT2, unknown)
	a.withoutSetID(unix.SYS_OPENAT, 2)
	a.createHere()
	a.oneOf(unix.SYS_TGKILL, 0, uint32(pid)) // Go's scheduler and abort
	a.oneOf(unix.SYS_SOCKET, 0, unix.AF_UNIX, unix.AF_NETLINK)
	a.oneOf(unix.SYS_SOCKETPAIR, 0, unix.AF_UNIX)
	a.call(unix.SYS_IOCTL, func() {
		a.loadArg(1)
		a.is(unix.TIOCSTI, deny) // injects terminal input
		a.is(tiocLinux, deny)    // the same on the console
		a.add(result, allow, 0, 0)
	})
	commands := bpfCommands
	if needs.Programs {
		commands = append(commands[:len(commands):len(commands)], unix.BPF_PROG_LOAD, unix.BPF_BTF_LOAD)
	}
	if !needs.BPF {
		a.oneOf(unix.SYS_BPF, 0, commands...)
	}
	a.add(result, allow, 0, 0)
	return a
}

const (
	tiocLinux = 0x541c
	kcmpFile  = 0
)

// filter sets no_new_privs and the filter on all threads at once.
func filter(needs Needs) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	code := program(needs, os.Getpid())
	f := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&f)))
	runtime.KeepAlive(code)
	switch {
	case errno != 0:
		return fmt.Errorf("set a seccomp filter: %w", errno)
	case thread != 0:
		return fmt.Errorf("set a seccomp filter: thread %d already has a different one", thread)
	}
	return nil
}
