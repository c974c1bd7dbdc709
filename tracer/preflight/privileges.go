// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Namespaces that the kernel makes at boot have fixed numbers: PROC_PID_INIT_INO
// in include/linux/proc_ns.h.
const initialPIDNamespace = "pid:[4026531836]"

// privilege is a capability and those that stand in for it.
type privilege struct {
	name string
	any  []int
}

// needed privileges. Since July 2025 all stable kernels ask for CAP_SYS_ADMIN for perf uprobes
// (CVE-2025-38466). It stands in for CAP_BPF, CAP_PERFMON and CAP_CHECKPOINT_RESTORE.
var needed = []privilege{
	{"CAP_SYS_ADMIN", []int{unix.CAP_SYS_ADMIN}},
	{"CAP_BPF", []int{unix.CAP_BPF, unix.CAP_SYS_ADMIN}},
	{"CAP_PERFMON", []int{unix.CAP_PERFMON, unix.CAP_SYS_ADMIN}},
	{"CAP_CHECKPOINT_RESTORE", []int{unix.CAP_CHECKPOINT_RESTORE, unix.CAP_SYS_ADMIN}},
	{"CAP_SYS_PTRACE", []int{unix.CAP_SYS_PTRACE}},
	{"CAP_DAC_READ_SEARCH", []int{unix.CAP_DAC_READ_SEARCH, unix.CAP_DAC_OVERRIDE}},
}

func checkCapabilities(env Env) Result {
	const name = "privileges"
	status, err := procStatus(env)
	if err != nil {
		return fail(name, reason(err), "mount /proc")
	}
	effective, err := strconv.ParseUint(status["CapEff"], 16, 64)
	if err != nil {
		return fail(name, fmt.Sprintf("effective capabilities in /proc/self/status: %q", status["CapEff"]), "mount /proc")
	}
	var missing []string
	for _, p := range needed {
		if !hasAny(effective, p.any) {
			missing = append(missing, p.name)
		}
	}
	uid, _, _ := strings.Cut(status["Uid"], "\t")
	who := "root"
	if uid != "0" {
		who = "user " + uid
	}
	if len(missing) == 0 {
		return Result{Name: name, Status: OK, Detail: who + " with all capabilities needed"}
	}
	remedy := "run as root: sudo vramprof …"
	if uid == "0" {
		remedy = "give the container or service " + strings.Join(missing, ", ")
	}
	return fail(name, who+" lacks "+strings.Join(missing, ", "), remedy)
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

// checkParanoid only explains: CAP_SYS_ADMIN, which is needed anyway, passes
// at every level.
func checkParanoid(env Env) Result {
	b, err := fs.ReadFile(env.Root, "proc/sys/kernel/perf_event_paranoid")
	if err != nil {
		return Result{}
	}
	return Result{Name: "perf paranoid", Status: OK, Detail: strings.TrimSpace(string(b)) + ", does not matter with CAP_SYS_ADMIN"}
}
