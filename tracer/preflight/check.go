// SPDX-License-Identifier: Apache-2.0

// Package preflight checks whether tracing can work on this machine. It reports what is missing and
// how to fix it.
package preflight

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/numa"
)

// ReadHost returns the Env of this machine, except for NVML.
func ReadHost() (Env, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return Env{}, fmt.Errorf("uname: %w", err)
	}
	env := Env{
		Root: os.DirFS("/"), Arch: runtime.GOARCH,
		Release: unix.ByteSliceToString(name.Release[:]), Version: unix.ByteSliceToString(name.Version[:]),
		Features: []Feature{
			{Name: "uprobe programs", Needed: true, Have: func() error { return features.HaveProgramType(ebpf.Kprobe) }},
			{Name: "ring buffer", Needed: true, Have: func() error { return features.HaveMapType(ebpf.RingBuf) }},
			{Name: "task_vma iterator", Have: haveTaskVMAIterator,
				Without: "vramprof finds processes by reading /proc/*/maps"},
			{Name: "attach cookies", Have: func() error {
				return features.HaveProgramHelper(ebpf.Kprobe, asm.FnGetAttachCookie)
			}, Without: "each probe uses a separate program"},
			{Name: uprobeMulti, Have: features.HaveBPFLinkUprobeMulti,
				Without: "detaching takes up to 0.1 s per probe"},
		},
		Calls:    hostCalls(),
		SelfTest: ReturnProbeSelfTest,
		MarkedPages: func() error {
			_, err := numa.Prepare(os.DirFS("/"), runtime.GOARCH)
			return err
		},
	}
	if kernel, err := ParseKernel(env.Release, env.Version, ""); err == nil && kernel.countsMemlock() {
		env.Features = append([]Feature{{Name: "unlimited locked memory (CAP_SYS_RESOURCE)", Needed: true, Have: liftMemlock}}, env.Features...)
	}
	return env, nil
}

func liftMemlock() error {
	return unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
}

// haveTaskVMAIterator loads such an iterator. features.HaveProgramType(ebpf.Tracing) would require
// fentry, which kernels without kprobes lack and vramprof does not need.
func haveTaskVMAIterator() error {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Tracing, AttachType: ebpf.AttachTraceIter, AttachTo: "task_vma", License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return err
	}
	return program.Close()
}

// Check runs all checks, in the order in which failures should be fixed. It skips checks that need
// missing privileges.
func Check(ctx context.Context, env Env) []Result {
	kernel, kernelResult := checkKernel(env)
	results := []Result{kernelResult, checkArch(env), checkBTF(env), checkUprobes(env), checkLockdown(env),
		checkUserNamespace(env), checkPIDNamespace(env)}
	privileges, effective := checkCapabilities(env)
	results = append(results, privileges)
	if privileges.Status != Fail {
		calls := checkCalls(env, effective)
		results = append(results, calls, checkParanoid(env, effective))
		if calls.Status != Fail && kernelResult.Status != Fail {
			results = append(results, checkFeatures(env), checkReturnProbes(ctx, env, kernel))
		}
	}
	results = append(results, checkAppArmor(env), checkSELinux(env), checkYama(env), checkNUMA(env))
	if kernel.callchainPanics() {
		results = append(results, Result{Name: "user stacks", Status: Warn,
			Detail: fmt.Sprintf("kernel %v can panic when a profiler takes user stacks while threads end", kernel),
			Remedy: "update the kernel (6.6.81 or newer)"})
	}
	results = append(results, checkDriver(ctx, env))
	shown := results[:0]
	for _, r := range results {
		if r.Name != "" {
			shown = append(shown, r)
		}
	}
	return shown
}

func checkKernel(env Env) (Kernel, Result) {
	signature, _ := fs.ReadFile(env.Root, "proc/version_signature")
	kernel, err := ParseKernel(env.Release, env.Version, string(signature))
	if err != nil {
		return Kernel{}, Result{Name: "kernel", Status: Warn, Detail: err.Error() + " is unknown to vramprof"}
	}
	if kernel.Less(oldest) {
		return kernel, fail("kernel", fmt.Sprintf("Linux %v is too old", kernel),
			fmt.Sprintf("use Linux %d.%d or newer", oldest.Major, oldest.Minor))
	}
	detail := "Linux " + env.Release
	if !strings.HasPrefix(env.Release, kernel.String()) {
		detail += fmt.Sprintf(" (%v)", kernel)
	}
	return kernel, Result{Name: "kernel", Status: OK, Detail: detail}
}

func checkArch(env Env) Result {
	switch env.Arch {
	case "amd64", "arm64":
		return Result{Name: "architecture", Status: OK, Detail: env.Arch}
	}
	return fail("architecture", env.Arch+" is not supported", "use x86_64 or arm64")
}

func checkBTF(env Env) Result {
	const path = "sys/kernel/btf/vmlinux"
	if _, err := fs.Stat(env.Root, path); err != nil {
		return fail("BTF", "the kernel lacks type information (BTF): "+reason(err), "use a kernel with CONFIG_DEBUG_INFO_BTF=y; in a container, mount /sys")
	}
	return Result{Name: "BTF", Status: OK, Detail: "/" + path}
}

func checkUprobes(env Env) Result {
	const path = "sys/bus/event_source/devices/uprobe/type"
	if _, err := fs.Stat(env.Root, path); err != nil {
		return fail("uprobes", "the kernel lacks uprobes: "+reason(err), "use a kernel with CONFIG_UPROBE_EVENTS=y; in a container, mount /sys")
	}
	return Result{Name: "uprobes", Status: OK, Detail: "perf events"}
}

func checkLockdown(env Env) Result {
	b, err := fs.ReadFile(env.Root, "sys/kernel/security/lockdown")
	if err != nil {
		return Result{Name: "lockdown", Status: OK, Detail: "none known"}
	}
	_, mode, _ := strings.Cut(string(b), "[") // "none [integrity] confidentiality"
	mode, _, _ = strings.Cut(mode, "]")
	if mode == "confidentiality" {
		return fail("lockdown", "kernel lockdown is in confidentiality mode: BPF programs may not read memory",
			"boot with lockdown=integrity or lockdown=none")
	}
	return Result{Name: "lockdown", Status: OK, Detail: mode}
}

// checkNUMA checks what automatic NUMA balancing does to stack traces where it is on. It takes the
// access rights of pages away, so that the next access shows who uses them.
func checkNUMA(env Env) Result {
	nodes := numa.Nodes(env.Root)
	if nodes == "" || !numa.IsBalancing(env.Root) {
		return Result{}
	}
	r := Result{Name: "NUMA balancing", Status: OK, Detail: "on, for nodes " + nodes + ": vramprof reads the stack pages that it hides"}
	if env.MarkedPages == nil {
		return Result{}
	}
	if err := env.MarkedPages(); err != nil {
		r.Status = Warn
		r.Detail = "on, for nodes " + nodes + ": stack traces of multithreaded processes are truncated at stack pages that were not accessed recently: " + err.Error()
		r.Remedy = "sysctl kernel.numa_balancing=0 before the processes start, or start them with numactl --membind"
	}
	return r
}

func checkFeatures(env Env) Result {
	if len(env.Features) == 0 {
		return Result{}
	}
	var have, without []string
	for _, f := range env.Features {
		err := f.Have()
		switch {
		case err == nil:
			have = append(have, f.Name)
		case !f.Needed:
			without = append(without, fmt.Sprintf("no %s: %s", f.Name, f.Without))
		case errors.Is(err, ebpf.ErrNotSupported):
			return fail("BPF", "the kernel lacks "+f.Name, "use Linux 5.10 or newer with CONFIG_BPF_SYSCALL=y and CONFIG_BPF_EVENTS=y")
		default:
			return fail("BPF", fmt.Sprintf("%s: %v", f.Name, err), "run as root on the host; a container's security modules or seccomp filters may forbid BPF")
		}
	}
	if len(without) > 0 {
		return Result{Name: "BPF", Status: Warn, Detail: strings.Join(without, "; ")}
	}
	return Result{Name: "BPF", Status: OK, Detail: strings.Join(have, ", ")}
}

func checkReturnProbes(ctx context.Context, env Env, kernel Kernel) Result {
	const name = "return probes"
	if env.SelfTest == nil {
		if kernel.seccompKills() {
			return Result{Name: name, Status: Warn, Detail: fmt.Sprintf("on kernel %v they can kill programs under seccomp; not tested", kernel),
				Remedy: "update the kernel (6.12.14, 6.13.3, 6.14 or newer)"}
		}
		return Result{}
	}
	err := env.SelfTest(ctx)
	switch {
	case err == nil:
		return Result{Name: name, Status: OK, Detail: "self-test passed, also under seccomp"}
	case errors.Is(err, ErrNotApplicable):
		return Result{Name: name, Status: OK, Detail: err.Error()}
	}
	return fail(name, err.Error(), "use a kernel with working uprobes; 6.11.0 to 6.12.13 and 6.13.0 to 6.13.2 need an update")
}

func checkDriver(ctx context.Context, env Env) Result {
	if env.NVML == nil {
		return Result{}
	}
	const name = "NVIDIA driver"
	version, err := env.NVML(ctx)
	if err == nil {
		return Result{Name: name, Status: OK, Detail: strings.TrimSpace("NVML " + version)}
	}
	remedy, reason := "install the driver's libnvidia-ml.so.1; in a container, use the NVIDIA runtime with the capability \"utility\"", err.Error()
	if x := interface{ Reason() string }(nil); errors.As(err, &x) { // the remedy is shown apart
		reason = x.Reason()
	}
	if known := interface{ Remedy() string }(nil); errors.As(err, &known) { // the library was found
		remedy = known.Remedy()
		return Result{Name: name, Status: Warn, Detail: "results are not reconciled with the driver's figures: " + reason, Remedy: remedy}
	}
	detail := "not found, so results are not reconciled with the driver's figures: " + reason
	if _, statErr := fs.Stat(env.Root, "proc/driver/nvidia/version"); statErr == nil {
		detail = "loaded but unusable: " + reason
	}
	return Result{Name: name, Status: Warn, Detail: detail, Remedy: remedy}
}
