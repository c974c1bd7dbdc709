// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"strconv"
	"strings"
)

// group is what the path of a control group identifies.
type group struct {
	container string // 64 hexadecimal digits, or a name; after "user-1000/" in the subtree of a user
	pod       string // uid with '-', as in the Kubernetes API
	job       string // Slurm's number
	unranked  bool   // a Slurm step that is no parallel task: its variables describe the whole job
}

// parseCgroup parses /proc/PID/cgroup: "0::/path" for version 2, "4:memory:/path" for version 1,
// where some hierarchies lack the container or the job.
func parseCgroup(text []byte) group {
	var g group
	for line := range bytes.Lines(text) {
		fields := strings.SplitN(strings.TrimSuffix(string(line), "\n"), ":", 3)
		if len(fields) < 3 {
			continue
		}
		found := parsePath(strings.TrimSuffix(fields[2], " (deleted)"))
		if g.container == "" {
			g.container = found.container
		}
		if g.pod == "" {
			g.pod = found.pod
		}
		if g.job == "" {
			g.job, g.unranked = found.job, found.unranked
		}
	}
	return g
}

// parsePath finds the innermost container of a path. Containers can be nested, such as pods of a
// Kubernetes node that is itself a container. Below user-1000.slice the names are that user's
// choice: rootless containers are there, but neither pods nor jobs, and nobody else's containers.
func parsePath(path string) group {
	var g group
	var before string // the segment before
	var owner string  // "user-1000/"
	var slurm, ecs bool
	for segment := range strings.SplitSeq(path, "/") {
		// Without a systemd driver, runc uses its argument as the group's name:
		// "SLICE:cri-containerd:ID".
		for part := range strings.SplitSeq(segment, ":") {
			name, unit := cutUnit(part)
			if id := containerID(name); id != "" && unit != ".slice" { // podman's pods are slices
				g.container = owner + id
			}
			if uid := podUID(name); uid != "" && owner == "" {
				g.pod = uid
			}
		}
		if ecs && isFargate(segment) {
			g.container = owner + segment
		}
		if name := containerName(before, segment); name != "" {
			g.container = owner + name
		}
		if job, ok := strings.CutPrefix(segment, "job_"); ok && slurm && number(job) != "" && owner == "" {
			g.job = job
		}
		switch segment {
		case "step_batch", "step_extern", "step_interactive":
			g.unranked = g.job != ""
		}
		if user := userOf(segment); user != "" && owner == "" {
			owner = user + "/"
		}
		slurm = slurm || strings.Contains(segment, "slurm")
		ecs = ecs || segment == "ecs"
		before = segment
	}
	return g
}

// userOf returns "user-1000" for the groups that systemd gives that user, "" for others.
func userOf(segment string) string {
	name, unit := cutUnit(segment)
	user, ok := strings.CutPrefix(name, "user-")
	if !ok || unit != ".slice" {
		user, ok = strings.CutPrefix(name, "user@")
		ok = ok && unit == ".service"
	}
	if !ok || number(user) == "" {
		return ""
	}
	return "user-" + user
}

// cutUnit splits the type off the name of a systemd unit.
func cutUnit(name string) (base, unit string) {
	for _, unit := range []string{".scope", ".slice", ".service"} {
		if base, ok := strings.CutSuffix(name, unit); ok {
			return base, unit
		}
	}
	return name, ""
}

// isFargate reports whether name is a container of Amazon ECS on Fargate: the task's id and a
// number.
func isFargate(name string) bool {
	task, n, ok := strings.Cut(name, "-")
	return ok && len(task) == 32 && isHex(task) && n != "" && len(n) <= 20 && strings.Trim(n, "0123456789") == ""
}

const idLength = 64

// containerID extracts the id from the names that Docker, containerd, CRI-O and podman use: the id
// alone or after "docker-", "cri-containerd-", "crio-", "libpod-payload-", "nerdctl-"…
func containerID(name string) string {
	n := len(name) - idLength
	if n < 0 || n > 0 && !strings.ContainsRune("-_", rune(name[n-1])) || !isHex(name[n:]) {
		return ""
	}
	return name[n:]
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

// podUID extracts the uid from the name of a pod's group: "pod2c0d…-…" with the cgroupfs driver,
// "kubepods-burstable-pod2c0d…_…" with the systemd driver, where '-' separates slices.
func podUID(name string) string {
	i := strings.LastIndex(name, "pod")
	if i < 0 || i > 0 && (name[i-1] != '-' || !strings.Contains(name[:i], "kubepods")) {
		return ""
	}
	uid := strings.ReplaceAll(name[i+len("pod"):], "_", "-")
	if !isUID(uid) {
		return ""
	}
	return uid
}

// isUID reports whether s is a UUID, or the hash that static pods have as uid.
func isUID(s string) bool {
	if len(s) == 32 {
		return isHex(s)
	}
	if len(s) != 36 {
		return false
	}
	for i, group := range strings.Split(s, "-") {
		if i > 4 || len(group) != [...]int{8, 4, 4, 4, 12}[i] || !isHex(group) {
			return false
		}
	}
	return true
}

// containerName extracts the names of system containers: LXC, Incus and LXD, systemd-nspawn.
func containerName(before, segment string) string {
	if name, ok := strings.CutPrefix(segment, "lxc.payload."); ok {
		return name
	}
	if before == "lxc" || before == "lxc.payload" {
		return segment
	}
	if before != "machine.slice" {
		return ""
	}
	base, unit := cutUnit(segment)
	if name, ok := strings.CutPrefix(base, "systemd-nspawn@"); ok && unit == ".service" {
		return unescape(name)
	}
	name, ok := strings.CutPrefix(base, "machine-")
	if name = unescape(name); !ok || unit != ".scope" || strings.HasPrefix(name, "qemu-") { // a virtual machine
		return ""
	}
	return name
}

// unescape decodes systemd's "\x2d", used for special characters in unit names.
func unescape(name string) string {
	if !strings.Contains(name, `\x`) {
		return name
	}
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if strings.HasPrefix(name[i:], `\x`) && i+4 <= len(name) {
			if c, err := strconv.ParseUint(name[i+2:i+4], 16, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(name[i])
	}
	return b.String()
}
