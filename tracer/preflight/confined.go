// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hostCalls returns the calls, each tried in a way that changes nothing.
func hostCalls() []Call {
	return []Call{
		{"bpf", tryBPF},
		{"perf_event_open", tryPerfEvents},
		{"process_vm_readv", tryReadMemory},
	}
}

// tryBPF uses a command that no kernel has, which returns EINVAL if BPF is allowed.
func tryBPF() error {
	const none = 1 << 30
	_, _, errno := unix.Syscall(unix.SYS_BPF, none, 0, 0)
	if errno == unix.EINVAL {
		return nil
	}
	return errno
}

// tryPerfEvents opens an event that reports mappings, on the first online CPU.
func tryPerfEvents() error {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_DUMMY, Bits: unix.PerfBitMmap}
	attr.Size = unix.PERF_ATTR_SIZE_VER0
	for cpu := range 1024 {
		fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if err == nil {
			unix.Close(fd)
		}
		if !errors.Is(err, unix.ENODEV) {
			return err
		}
	}
	return unix.ENODEV
}

func tryReadMemory() error {
	from, to := byte(1), byte(0)
	local := []unix.Iovec{{Base: &to}}
	local[0].SetLen(1)
	remote := []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&from)), Len: 1}}
	_, err := unix.ProcessVMReadv(os.Getpid(), local, remote, 0)
	runtime.KeepAlive(&from)
	return err
}

// checkCalls runs only if no capability is missing.
func checkCalls(env Env, effective uint64) Result {
	const name = "system calls"
	var names []string
	for _, c := range env.Calls {
		err := c.Try()
		if err == nil || !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.ENOSYS) {
			names = append(names, c.Name)
			continue
		}
		level := strings.TrimSpace(read(env, "proc/sys/kernel/perf_event_paranoid"))
		if c.Name == "perf_event_open" && errors.Is(err, unix.EACCES) && level > "2" && !hasAny(effective, forPerfProbes.any) {
			return fail(name, "kernel.perf_event_paranoid is "+level+", so this kernel requires CAP_SYS_ADMIN",
				"give it CAP_SYS_ADMIN, or set sysctl kernel.perf_event_paranoid=2")
		}
		return fail(name, forbidden(env, c.Name, err), "docker run or podman run: --security-opt seccomp=unconfined --security-opt apparmor=unconfined; "+
			"Kubernetes: seccompProfile and appArmorProfile of type Unconfined; systemd: SystemCallFilter=")
	}
	if len(names) == 0 {
		return Result{}
	}
	return Result{Name: name, Status: OK, Detail: strings.Join(names, ", ")}
}

// forbidden describes what forbids a call, as far as it is known.
func forbidden(env Env, call string, err error) string {
	status, _ := procStatus(env)
	profile, enforced := appArmor(env)
	filtered := status["Seccomp"] == "2"
	switch {
	case filtered && enforced:
		return fmt.Sprintf("a seccomp filter, or the AppArmor profile %s, forbids %s: %v", profile, call, err)
	case filtered:
		return fmt.Sprintf("a seccomp filter forbids %s: %v", call, err)
	case enforced:
		return fmt.Sprintf("the AppArmor profile %s forbids %s: %v", profile, call, err)
	}
	return fmt.Sprintf("%s is forbidden for an unknown reason, although no capability is missing: %v", call, err)
}

// appArmor returns the AppArmor profile of this process, such as "docker-default (enforce)", and
// whether it is enforced.
func appArmor(env Env) (profile string, enforced bool) {
	profile = read(env, "proc/self/attr/apparmor/current")
	if profile == "" { // before Linux 5.8; it may belong to another module
		profile = read(env, "proc/self/attr/current")
	}
	profile = strings.Trim(profile, "\x00\n ")
	return profile, strings.HasSuffix(profile, " (enforce)")
}

// ownProfile is the profile of packaging/apparmor, which allows what tracing needs. The kernel also
// asks the profile of the process to be read.
const ownProfile = "vramprof (enforce)"

func checkAppArmor(env Env) Result {
	profile, enforced := appArmor(env)
	if !enforced {
		return Result{}
	}
	if profile == ownProfile {
		return Result{Name: "AppArmor", Status: OK, Detail: profile + ", hides processes that another profile confines, such as Docker's"}
	}
	return Result{Name: "AppArmor", Status: Warn, Detail: "the profile " + profile + " confines vramprof and may hide processes outside the profile",
		Remedy: "docker run: --security-opt apparmor=unconfined; Kubernetes: appArmorProfile of type Unconfined; else a profile with \"ptrace read\""}
}

func checkSELinux(env Env) Result {
	if strings.TrimSpace(read(env, "sys/fs/selinux/enforce")) != "1" {
		return Result{}
	}
	const domain = 2 // "system_u:system_r:container_t:s0:c1,c2"
	fields := strings.Split(read(env, "proc/self/attr/current"), ":")
	if len(fields) <= domain || !strings.HasPrefix(fields[domain], "container_") {
		return Result{}
	}
	return Result{Name: "SELinux", Status: Warn, Detail: "vramprof is confined as " + fields[domain] + ", which forbids BPF and access to other processes",
		Remedy: "docker run or podman run: --security-opt label=disable; Kubernetes: seLinuxOptions type: spc_t"}
}

// checkYama checks for the level that even CAP_SYS_PTRACE does not override.
func checkYama(env Env) Result {
	if strings.TrimSpace(read(env, "proc/sys/kernel/yama/ptrace_scope")) != "3" {
		return Result{}
	}
	return Result{Name: "ptrace scope", Status: Warn,
		Detail: "kernel.yama.ptrace_scope is 3: vramprof cannot read the memory of processes, so Python functions have no names",
		Remedy: "boot with a lower kernel.yama.ptrace_scope (a running system cannot lower it)"}
}

// checkParanoid only informs; checkCalls tests whether the setting matters.
func checkParanoid(env Env, effective uint64) Result {
	level := strings.TrimSpace(read(env, "proc/sys/kernel/perf_event_paranoid"))
	if level == "" {
		return Result{}
	}
	with := "CAP_PERFMON"
	if hasAny(effective, forPerfProbes.any) {
		with = "CAP_SYS_ADMIN"
	}
	return Result{Name: "perf paranoid", Status: OK, Detail: level + ", has no effect with " + with}
}
