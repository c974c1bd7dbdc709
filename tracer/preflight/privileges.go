// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Namespaces that the kernel makes at boot have fixed numbers: PROC_PID_INIT_INO
// in include/linux/proc_ns.h.
const initialPIDNamespace = "pid:[4026531836]"

// privilege is a capability and those that stand in for it.
type privilege struct {
	name    string
	any     []int
	purpose string
}

// needed privileges, each tried without (cmd/vramprof/test/e2e). CAP_SYS_ADMIN stands in for CAP_BPF, CAP_PERFMON and
// CAP_CHECKPOINT_RESTORE, which came with Linux 5.8 and 5.9.
var needed = []privilege{
	{"CAP_BPF", []int{unix.CAP_BPF, unix.CAP_SYS_ADMIN}, "for BPF programs and maps"},
	{"CAP_PERFMON", []int{unix.CAP_PERFMON, unix.CAP_SYS_ADMIN}, "for probes and mapping events"},
	{"CAP_CHECKPOINT_RESTORE", []int{unix.CAP_CHECKPOINT_RESTORE, unix.CAP_SYS_ADMIN}, "to open the files that processes map"},
	{"CAP_SYS_PTRACE", []int{unix.CAP_SYS_PTRACE}, "to look into processes of other users"},
	{"CAP_DAC_READ_SEARCH", []int{unix.CAP_DAC_READ_SEARCH, unix.CAP_DAC_OVERRIDE}, "to open files of other users"},
}

// forPerfProbes is needed where probes are perf events. Since July 2025 all stable kernels ask for it there
// (CVE-2025-38466), but not for uprobe_multi.
var forPerfProbes = privilege{"CAP_SYS_ADMIN", []int{unix.CAP_SYS_ADMIN}, "for uprobes before Linux 6.6"}

// uprobeMulti is the name of that Feature.
const uprobeMulti = "uprobe_multi"

func checkCapabilities(env Env) (r Result, effective uint64) {
	const name = "privileges"
	status, err := procStatus(env)
	if err != nil {
		return fail(name, reason(err), "mount /proc"), 0
	}
	effective, err = strconv.ParseUint(status["CapEff"], 16, 64)
	if err != nil {
		return fail(name, fmt.Sprintf("effective capabilities in /proc/self/status: %q", status["CapEff"]), "mount /proc"), 0
	}
	var missing, names []string
	for _, p := range needed {
		if !hasAny(effective, p.any) {
			missing, names = append(missing, p.name+" "+p.purpose), append(names, p.name)
		}
	}
	if p := forPerfProbes; len(missing) == 0 && !hasAny(effective, p.any) && env.lacks(uprobeMulti) {
		missing, names = append(missing, p.name+" "+p.purpose), append(names, p.name)
	}
	uid, _, _ := strings.Cut(status["Uid"], "\t")
	who := "root"
	if uid != "0" {
		who = "user " + uid
	}
	remedy := "run as root: sudo vramprof …; or give it " + strings.Join(names, ", ")
	if uid == "0" {
		remedy = "give the container or service " + strings.Join(names, ", ")
	}
	switch {
	case len(missing) > 0:
		return fail(name, who+" lacks "+strings.Join(missing, "; "), remedy), effective
	case env.Commands && !hasAny(effective, []int{unix.CAP_KILL}):
		return Result{Name: name, Status: Warn,
			Detail: who + " lacks CAP_KILL: record -- COMMAND cannot hold programs while they load libraries, their first calls may be missed",
			Remedy: "give it CAP_KILL"}, effective
	}
	return Result{Name: name, Status: OK, Detail: who + " with all capabilities needed"}, effective
}

// lacks says whether the kernel does not have a feature.
func (env Env) lacks(feature string) bool {
	for _, f := range env.Features {
		if f.Name == feature {
			return errors.Is(f.Have(), ebpf.ErrNotSupported)
		}
	}
	return false
}

func hasAny(effective uint64, capabilities []int) bool {
	for _, c := range capabilities {
		if effective&(1<<c) != 0 {
			return true
		}
	}
	return false
}

// procStatus reads the "Key:\tvalue" lines of /proc/self/status.
func procStatus(env Env) (map[string]string, error) {
	b, err := fs.ReadFile(env.Root, "proc/self/status")
	if err != nil {
		return nil, err
	}
	status := map[string]string{}
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(line, ":")
		status[key] = strings.TrimSpace(value)
	}
	return status, nil
}

func checkPIDNamespace(env Env) Result {
	const name = "pid namespace"
	const remedy = "run on the host, or give the container the host's: docker run --pid=host; hostPID: true"
	namespace, err := fs.ReadLink(env.Root, "proc/self/ns/pid")
	if err != nil {
		return fail(name, reason(err), "mount the host's /proc")
	}
	if namespace != initialPIDNamespace {
		return fail(name, "not the host's: "+namespace+", so pids would not match", remedy)
	}
	return Result{Name: name, Status: OK, Detail: "the host's"}
}

func checkUserNamespace(env Env) Result {
	const name = "user namespace"
	b, err := fs.ReadFile(env.Root, "proc/self/uid_map")
	if err != nil { // a kernel without user namespaces
		return Result{Name: name, Status: OK, Detail: "none"}
	}
	if strings.Join(strings.Fields(string(b)), " ") != "0 0 4294967295" {
		return fail(name, "not the host's: the kernel refuses BPF to its root",
			"run as the host's root, in a rootful container without user namespace")
	}
	return Result{Name: name, Status: OK, Detail: "the host's"}
}
