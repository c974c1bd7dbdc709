// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/nvml"
)

const rootStatus = "Name:\tvramprof\nUid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n"

// machine returns an Env in which every check passes.
func machine() Env {
	return Env{
		Root: fstest.MapFS{
			"sys/kernel/btf/vmlinux":                   {},
			"sys/bus/event_source/devices/uprobe/type": {Data: []byte("9\n")},
			"sys/kernel/security/lockdown":             {Data: []byte("none [integrity] confidentiality\n")},
			"proc/self/status":                         {Data: []byte(rootStatus)},
			"proc/self/uid_map":                        {Data: []byte("         0          0 4294967295\n")},
			"proc/self/ns/pid":                         {Data: []byte(initialPIDNamespace), Mode: fs.ModeSymlink},
			"proc/sys/kernel/perf_event_paranoid":      {Data: []byte("4\n")},
		},
		Arch: "amd64", Release: "6.8.0-45-generic", Version: "#45-Ubuntu SMP",
		Features: []Feature{
			{Name: "ring buffer", Needed: true, Have: func() error { return nil }},
			{Name: uprobeMulti, Have: func() error { return nil }, Without: "detaching is slow"},
		},
		Calls: []Call{
			{"bpf", func() error { return nil }},
			{"perf_event_open", func() error { return nil }},
		},
		SelfTest: func(context.Context) error { return nil },
		NVML:     func(context.Context) (string, error) { return "550.1", nil },
	}
}

func file(env *Env, name, content string) {
	env.Root.(fstest.MapFS)[name] = &fstest.MapFile{Data: []byte(content)}
}

func status(env *Env, uid int, effective uint64) {
	file(env, "proc/self/status", fmt.Sprintf("Uid:\t%d\t0\t0\t0\nCapEff:\t%016x\n", uid, effective))
}

func TestAllChecksPass(t *testing.T) {
	results := Check(t.Context(), machine())
	for _, r := range results {
		if r.Status != OK || r.Remedy != "" || r.Code != 0 || r.Detail == "" {
			t.Errorf("%+v", r)
		}
	}
	if len(results) != 13 {
		t.Errorf("%d results: %+v", len(results), results)
	}
}

func TestCheckReportsEachProblem(t *testing.T) {
	const all = 1<<41 - 1
	without := func(capabilities ...int) (effective uint64) {
		effective = all
		for _, c := range capabilities {
			effective &^= 1 << c
		}
		return effective
	}
	for _, c := range []struct {
		name   string
		change func(*Env)
		want   Result // Detail and Remedy are substrings to find
	}{
		{"old kernel", func(e *Env) { e.Release, e.Version = "5.8.0-30-amd64", "#1 SMP Debian 5.8.14-1" },
			fail("kernel", "Linux 5.8.14 is too old", "Linux 5.10")},
		{"strange kernel", func(e *Env) { e.Release = "next" }, Result{Name: "kernel", Status: Warn, Detail: `"next"`}},
		{"architecture", func(e *Env) { e.Arch = "riscv64" }, fail("architecture", "riscv64", "arm64")},
		{"no BTF", func(e *Env) { delete(e.Root.(fstest.MapFS), "sys/kernel/btf/vmlinux") },
			fail("BTF", "/sys/kernel/btf/vmlinux: file does not exist", "CONFIG_DEBUG_INFO_BTF")},
		{"no uprobes", func(e *Env) { delete(e.Root.(fstest.MapFS), "sys/bus/event_source/devices/uprobe/type") },
			fail("uprobes", "uprobe/type: file does not exist", "CONFIG_UPROBE_EVENTS")},
		{"lockdown", func(e *Env) { file(e, "sys/kernel/security/lockdown", "none integrity [confidentiality]\n") },
			fail("lockdown", "confidentiality", "lockdown=integrity")},
		{"user namespace", func(e *Env) { file(e, "proc/self/uid_map", "0 100000 65536\n") },
			fail("user namespace", "denies BPF", "root on the host")},
		{"pid namespace", func(e *Env) {
			e.Root.(fstest.MapFS)["proc/self/ns/pid"] = &fstest.MapFile{Data: []byte("pid:[4026532281]"), Mode: fs.ModeSymlink}
		}, fail("pid namespace", "pid:[4026532281]", "--pid=host")},
		{"not root", func(e *Env) { status(e, 1000, 0) },
			fail("privileges", "user 1000 lacks CAP_BPF, CAP_PERFMON, CAP_CHECKPOINT_RESTORE, CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH", "sudo")},
		{"no CAP_BPF", func(e *Env) { status(e, 0, without(21, 39)) }, lacks("CAP_BPF", "for BPF programs")},
		{"no CAP_PERFMON", func(e *Env) { status(e, 0, without(21, 38)) }, lacks("CAP_PERFMON", "for probes")},
		{"no CAP_CHECKPOINT_RESTORE", func(e *Env) { status(e, 0, without(21, 40)) }, lacks("CAP_CHECKPOINT_RESTORE", "to open files mapped by processes")},
		{"no CAP_SYS_PTRACE", func(e *Env) { status(e, 0, without(19)) }, lacks("CAP_SYS_PTRACE", "to read other users' processes")},
		{"no CAP_DAC_READ_SEARCH", func(e *Env) { status(e, 0, without(1, 2)) }, lacks("CAP_DAC_READ_SEARCH", "to open other users' files")},
		{"CAP_SYS_ADMIN is not needed", func(e *Env) { status(e, 0, without(21)) }, Result{Name: "privileges", Status: OK, Detail: "root"}},
		{"CAP_SYS_ADMIN is needed for perf events", func(e *Env) {
			status(e, 0, without(21))
			e.Features[1].Have = func() error { return ebpf.ErrNotSupported }
		}, lacks("CAP_SYS_ADMIN", "for uprobes before Linux 6.6")},
		{"implied capabilities", func(e *Env) { status(e, 0, without(2, 38, 39, 40)) },
			Result{Name: "privileges", Status: OK, Detail: "root"}},
		{"no CAP_KILL", func(e *Env) { status(e, 0, without(5)) }, Result{Name: "privileges", Status: OK, Detail: "root"}},
		{"no CAP_KILL for a command", func(e *Env) { status(e, 0, without(5)); e.Commands = true },
			Result{Name: "privileges", Status: Warn, Detail: "root lacks CAP_KILL", Remedy: "CAP_KILL"}},
		{"filter against bpf", func(e *Env) { forbid(e, 0, unix.EPERM, "Seccomp:\t2\n") },
			fail("system calls", "a seccomp filter forbids bpf: operation not permitted", "seccomp=unconfined")},
		{"filter that knows no perf_event_open", func(e *Env) { forbid(e, 1, unix.ENOSYS, "Seccomp:\t2\n") },
			fail("system calls", "a seccomp filter forbids perf_event_open: function not implemented", "seccompProfile")},
		{"AppArmor against bpf", func(e *Env) {
			forbid(e, 0, unix.EACCES, "Seccomp:\t0\n")
			file(e, "proc/self/attr/apparmor/current", "docker-default (enforce)\n")
		}, fail("system calls", "the AppArmor profile docker-default (enforce) forbids bpf: permission denied", "apparmor=unconfined")},
		{"filter or AppArmor", func(e *Env) {
			forbid(e, 0, unix.EPERM, "Seccomp:\t2\n")
			file(e, "proc/self/attr/current", "docker-default (enforce)\n")
		}, fail("system calls", "a seccomp filter, or the AppArmor profile docker-default (enforce), forbids bpf", "unconfined")},
		{"unknown cause", func(e *Env) { forbid(e, 0, unix.EPERM, "") }, fail("system calls", "bpf is forbidden for an unknown reason", "unconfined")},
		{"Ubuntu's perf_event_paranoid", func(e *Env) {
			status(e, 1000, without(21))
			e.Calls[1].Try = func() error { return unix.EACCES }
		}, fail("system calls", "kernel.perf_event_paranoid is 4, so this kernel requires CAP_SYS_ADMIN", "sysctl kernel.perf_event_paranoid=2")},
		{"perf_event_paranoid", func(*Env) {}, Result{Name: "perf paranoid", Status: OK, Detail: "4, has no effect with CAP_SYS_ADMIN"}},
		{"call that fails for another reason", func(e *Env) { e.Calls[1].Try = func() error { return unix.EMFILE } },
			Result{Name: "system calls", Status: OK, Detail: "perf_event_open"}},
		{"AppArmor with the package's profile", func(e *Env) { file(e, "proc/self/attr/apparmor/current", "vramprof (enforce)\n") },
			Result{Name: "AppArmor", Status: OK, Detail: "vramprof (enforce), hides processes that another profile confines"}},
		{"AppArmor with a profile below the package's", func(e *Env) { file(e, "proc/self/attr/apparmor/current", "vramprof//&docker-default (enforce)\n") },
			Result{Name: "AppArmor", Status: Warn, Detail: "vramprof//&docker-default (enforce) confines", Remedy: "apparmor=unconfined"}},
		{"AppArmor", func(e *Env) { file(e, "proc/self/attr/apparmor/current", "docker-default (enforce)\n") },
			Result{Name: "AppArmor", Status: Warn, Detail: "docker-default (enforce) confines", Remedy: "apparmor=unconfined"}},
		{"SELinux", func(e *Env) {
			file(e, "sys/fs/selinux/enforce", "1")
			file(e, "proc/self/attr/current", "system_u:system_r:container_t:s0:c1,c2\x00")
		}, Result{Name: "SELinux", Status: Warn, Detail: "container_t", Remedy: "label=disable"}},
		{"Yama", func(e *Env) { file(e, "proc/sys/kernel/yama/ptrace_scope", "3\n") },
			Result{Name: "ptrace scope", Status: Warn, Detail: "Python functions have no names", Remedy: "boot"}},
		{"NUMA balancing", func(e *Env) {
			file(e, "proc/sys/kernel/numa_balancing", "1\n")
			file(e, "sys/devices/system/node/online", "0-1\n")
			e.MarkedPages = func() error { return errors.New("the kernel hides its addresses") }
		}, Result{Name: "NUMA balancing", Status: Warn, Detail: "stack pages that were not accessed recently: the kernel hides its addresses", Remedy: "kernel.numa_balancing=0"}},
		{"NUMA balancing, pages readable", func(e *Env) {
			file(e, "proc/sys/kernel/numa_balancing", "1\n")
			file(e, "sys/devices/system/node/online", "0-1\n")
			e.MarkedPages = func() error { return nil }
		}, Result{Name: "NUMA balancing", Status: OK, Detail: "on, for nodes 0-1: vramprof reads the stack pages"}},
		{"no /proc", func(e *Env) { delete(e.Root.(fstest.MapFS), "proc/self/status") },
			fail("privileges", "/proc/self/status", "mount /proc")},
		{"no ring buffer", func(e *Env) { e.Features[0].Have = func() error { return ebpf.ErrNotSupported } },
			fail("BPF", "lacks ring buffer", "5.10")},
		{"BPF forbidden", func(e *Env) { e.Features[0].Have = func() error { return os.ErrPermission } },
			fail("BPF", "permission denied", "security modules")},
		{"no uprobe_multi", func(e *Env) { e.Features[1].Have = func() error { return ebpf.ErrNotSupported } },
			Result{Name: "BPF", Status: Warn, Detail: "no uprobe_multi: detaching is slow"}},
		{"self-test", func(e *Env) { e.SelfTest = func(context.Context) error { return ErrReturnProbeKills } },
			fail("return probes", "under seccomp", "6.12.13")},
		{"self-test not applicable", func(e *Env) { e.SelfTest = func(context.Context) error { return ErrNotApplicable } },
			Result{Name: "return probes", Status: OK, Detail: "not applicable"}},
		{"bad kernel, not tested", func(e *Env) { e.SelfTest, e.Release, e.Version = nil, "6.12.3", "" },
			Result{Name: "return probes", Status: Warn, Detail: "6.12.3", Remedy: "6.12.14"}},
		{"bad kernel, tested", func(e *Env) { e.Release, e.Version = "6.12.3", "" },
			Result{Name: "return probes", Status: OK, Detail: "passed"}},
		{"panicking kernel", func(e *Env) { e.Release, e.Version = "6.6.60", "" },
			Result{Name: "user stacks", Status: Warn, Detail: "6.6.60 can panic", Remedy: "6.6.81"}},
		{"no driver", func(e *Env) { e.NVML = func(context.Context) (string, error) { return "", errors.New("dlopen") } },
			Result{Name: "NVIDIA driver", Status: Warn, Detail: "not found", Remedy: "install"}},
		{"no library", func(e *Env) {
			e.NVML = func(context.Context) (string, error) {
				return "", &nvml.LoadError{Err: errors.New("dlopen (install path)")}
			}
		}, Result{Name: "NVIDIA driver", Status: Warn, Detail: "driver's figures: dlopen (install path)", Remedy: "install the driver's"}},
		{"driver that does not answer", func(e *Env) {
			e.NVML = func(context.Context) (string, error) {
				return "", &nvml.InitError{Err: errors.New("nvmlInit: unknown"), Advice: "load the driver"}
			}
		}, Result{Name: "NVIDIA driver", Status: Warn, Detail: "driver's figures: nvmlInit: unknown", Remedy: "load the driver"}},
		{"driver without library", func(e *Env) {
			e.NVML = func(context.Context) (string, error) { return "", errors.New("dlopen") }
			file(e, "proc/driver/nvidia/version", "NVRM\n")
		}, Result{Name: "NVIDIA driver", Status: Warn, Detail: "loaded but unusable: dlopen", Remedy: "install"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			env := machine()
			c.change(&env)
			results := Check(t.Context(), env)
			i := slices.IndexFunc(results, func(r Result) bool { return r.Name == c.want.Name })
			if i < 0 {
				t.Fatalf("no %q in %+v", c.want.Name, results)
			}
			got := results[i]
			if got.Status != c.want.Status || got.Code != c.want.Code ||
				!strings.Contains(got.Detail, c.want.Detail) || !strings.Contains(got.Remedy, c.want.Remedy) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
			if code := ExitCode(results); code != c.want.Code {
				t.Errorf("exit code %d, want %d", code, c.want.Code)
			}
		})
	}
}

// lacks returns the Result for root without one capability.
func lacks(capability, purpose string) Result {
	return fail("privileges", "root lacks "+capability+" "+purpose, "give the container or service "+capability)
}

// forbid makes one call fail for root. lines are added to its /proc/self/status.
func forbid(e *Env, call int, err error, lines string) {
	e.Calls[call].Try = func() error { return err }
	file(e, "proc/self/status", rootStatus+lines)
}

func TestHarmlessConfinementIsNotReported(t *testing.T) {
	env := machine()
	file(&env, "proc/self/attr/apparmor/current", "unconfined\n")
	file(&env, "proc/self/attr/current", "system_u:system_r:unconfined_t:s0\x00")
	file(&env, "sys/fs/selinux/enforce", "1")
	file(&env, "proc/sys/kernel/yama/ptrace_scope", "1\n")
	for _, r := range Check(t.Context(), env) {
		if r.Name == "AppArmor" || r.Name == "SELinux" || r.Name == "ptrace scope" {
			t.Errorf("%+v", r)
		}
	}
}

func TestNUMABalancingOffOrWithOneNodeIsNotReported(t *testing.T) {
	for mode, nodes := range map[string]string{"0\n": "0-1\n", "1\n": "0\n", "2\n": ""} {
		env := machine()
		file(&env, "proc/sys/kernel/numa_balancing", mode)
		file(&env, "sys/devices/system/node/online", nodes)
		for _, r := range Check(t.Context(), env) {
			if r.Name == "NUMA balancing" {
				t.Errorf("mode %q, nodes %q: %+v", mode, nodes, r)
			}
		}
	}
}

func TestPrivilegedChecksAreSkippedWithoutPrivileges(t *testing.T) {
	env := machine()
	status(&env, 1000, 0)
	env.SelfTest = func(context.Context) error { t.Error("self-test called"); return nil }
	env.Features[0].Have = func() error { t.Error("feature probed"); return nil }
	env.Calls[0].Try = func() error { t.Error("call tried"); return nil }
	Check(t.Context(), env)
}

func TestHostCanTrace(t *testing.T) {
	needTracing(t)
	env, err := ReadHost()
	if err != nil {
		t.Fatal(err)
	}
	results := Check(t.Context(), env)
	for _, r := range results {
		t.Logf("%-20s %-4s %s [%s]", r.Name, r.Status, r.Detail, r.Remedy)
	}
	if ExitCode(results) != 0 {
		t.Error("this machine cannot trace")
	}
}
