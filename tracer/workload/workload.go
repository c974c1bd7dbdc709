// SPDX-License-Identifier: Apache-2.0

// Package workload identifies the workload of a process: its container and Kubernetes pod from the
// path of its control group, its batch job and its rank in distributed training from its
// environment, and what a Ray worker runs from its title.
//
// All come from the traced process or its user: every value is truncated and cleaned of control
// characters, and none is used as a path.
package workload

import (
	"fmt"
	"io"
	"os"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// maxCgroup limits the bytes of /proc/PID/cgroup: 13 hierarchies of version 1 with the longest
// path.
const maxCgroup = 64 << 10

// Host reads the workloads of this machine's processes. It is not safe for concurrent use.
type Host struct {
	name string
	pods *pods
}

// NewHost returns a Host that finds the names of pods and their containers in the kubelet's log
// folders.
func NewHost() *Host {
	name, _ := os.Hostname()
	// The second root is for a vramprof with the host's processes but a separate file system.
	return &Host{name: name, pods: newPods("", "/proc/1/root")}
}

// Read returns the workload of a running process with this environment ("KEY=value" strings) and
// this command line, which is the title of programs that set one. Unknown fields are empty; an
// exited process has no container.
func (h *Host) Read(pid uint32, environ []string, title string) ledger.Workload {
	w := Parse(cgroupOf(pid), environ, h.name, h.pods.pod)
	if w.Pod != "" && w.Container != "" {
		w.PodContainer = clean(h.pods.container(w.Container))
	}
	w.Actor = actor(title)
	return w
}

// Parse returns the workload that /proc/PID/cgroup (cgroup) and an environment describe. host is
// this machine's name. pods returns the namespace and name of a pod by its uid, or "".
//
// Job is "name (number)", or the part that is known. The control group has priority over the
// environment, which processes inherit.
func Parse(cgroup []byte, environ []string, host string, pods func(uid string) (namespace, pod string)) ledger.Workload {
	p := parseCgroup(cgroup)
	v := pick(environ)
	w := ledger.Workload{Container: clean(p.container), Job: v.job(p.job)}
	if w.Container == "" {
		w.Container = v.first("APPTAINER_NAME", "SINGULARITY_NAME") // they create no control group
	}
	if p.pod != "" {
		namespace, pod := pods(p.pod)
		w.Namespace, w.Pod = clean(namespace), clean(pod)
	}
	if w.Pod == "" && (p.pod != "" || v["KUBERNETES_SERVICE_HOST"] != "") {
		w.Namespace, w.Pod = v.first("POD_NAMESPACE"), v.first("POD_NAME")
	}
	if w.Pod == "" && p.pod != "" {
		w.Pod = p.pod
		// A pod on the host's network has the host's name.
		if name := v.first("HOSTNAME"); name != "" && name != host {
			w.Pod = name
		}
	}
	v.ranks(&w, p.unranked)
	return w
}

// cgroupOf reads /proc/PID/cgroup. The kernel generates it from its own data, so the process cannot
// delay the read.
func cgroupOf(pid uint32) []byte {
	f, err := os.Open(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return nil
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, maxCgroup))
	return text
}
