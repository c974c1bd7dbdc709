// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The initial namespaces have fixed numbers: PROC_PID_INIT_INO in include/linux/proc_ns.h.
const initialPIDNamespace = "pid:[4026531836]"

// privilege is a capability, with the capabilities that imply it.
type privilege struct {
	name    string
	any     []int
	purpose string
}

// needed lists the needed privileges. cmd/vramprof/test/e2e tests vramprof without each.
// CAP_SYS_ADMIN implies CAP_BPF, CAP_PERFMON (both since Linux 5.8) and CAP_CHECKPOINT_RESTORE
// (since 5.9).
var needed = []privilege{
	{"CAP_BPF", []int{unix.CAP_BPF, unix.CAP_SYS_ADMIN}, "for BPF programs and maps"},
	{"CAP_PERFMON", []int{unix.CAP_PERFMON, unix.CAP_SYS_ADMIN}, "for probes and mapping events"},
	{"CAP_CHECKPOINT_RESTORE", []int{unix.CAP_CHECKPOINT_RESTORE, unix.CAP_SYS_ADMIN}, "to open files mapped by processes"},
	{"CAP_SYS_PTRACE", []int{unix.CAP_SYS_PTRACE}, "to read other users' processes"},
	{"CAP_DAC_READ_SEARCH", []int{unix.CAP_DAC_READ_SEARCH, unix.CAP_DAC_OVERRIDE}, "to open other users' files"},
}

// forPerfProbes is needed if probes are perf events. Since July 2025, all stable kernels require it
// for them (CVE-2025-38466), but not for uprobe_multi.
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
	case len(missing) == len(needed) && uid != "0": // somebody forgot sudo
		return fail(name, who+" lacks "+strings.Join(names, ", "), "run as root: sudo vramprof …; or give it these capabilities"), effective
	case len(missing) > 0:
		return fail(name, who+" lacks "+strings.Join(missing, "; "), remedy), effective
	case env.Commands && !hasAny(effective, []int{unix.CAP_KILL}):
		return Result{Name: name, Status: Warn,
			Detail: who + " lacks CAP_KILL: record -- COMMAND cannot hold programs while they load libraries and may miss their first calls",
			Remedy: "give it CAP_KILL"}, effective
	}
	return Result{Name: name, Status: OK, Detail: who + " with all needed capabilities"}, effective
}

func hasAny(effective uint64, capabilities []int) bool {
	for _, c := range capabilities {
		if effective&(1<<c) != 0 {
			return true
		}
	}
	return false
}

// procStatus returns the "Key:\tvalue" lines of /proc/self/status.
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
		return fail(name, "not the host's: "+namespace+", so pids do not match", remedy)
	}
	return Result{Name: name, Status: OK, Detail: "the host's"}
}

func checkUserNamespace(env Env) Result {
	const name = "user namespace"
	b, err := fs.ReadFile(env.Root, "proc/self/uid_map")
	if err != nil { // the kernel has no user namespaces
		return Result{Name: name, Status: OK, Detail: "none"}
	}
	if strings.Join(strings.Fields(string(b)), " ") != "0 0 4294967295" {
		return fail(name, "not the host's: the kernel denies BPF to root in it",
			"run as root on the host, or in a rootful container without a user namespace")
	}
	return Result{Name: name, Status: OK, Detail: "the host's"}
}
