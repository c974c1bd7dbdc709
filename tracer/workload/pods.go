// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// maxPods is the most entries read from a log folder; the kubelet keeps those of running pods and
// of some that have ended.
const maxPods = 4096

// podLogs finds the names of pods by the folders in which the kubelet keeps their logs.
// NAMESPACE_POD_UID exists before a container starts.
type podLogs struct {
	dirs  []string           // the first readable one is used
	names map[string]podName // by uid
}

type podName struct{ namespace, pod string }

// find looks up a pod. If the pod is unknown, find reads the folder again.
func (p *podLogs) find(uid string) (namespace, pod string) {
	name, ok := p.names[uid]
	if !ok {
		p.read()
		name = p.names[uid]
	}
	return name.namespace, name.pod
}

func (p *podLogs) read() {
	for _, dir := range p.dirs {
		// O_DIRECTORY: opening a FIFO would block.
		f, err := os.OpenFile(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		entries, _ := f.Readdirnames(maxPods)
		f.Close()
		p.names = make(map[string]podName, len(entries))
		for _, entry := range entries {
			if uid, name, ok := parsePod(entry); ok {
				p.names[uid] = name
			}
		}
		return
	}
}

// parsePod splits NAMESPACE_POD_UID. None of the three contains '_'.
func parsePod(entry string) (uid string, name podName, ok bool) {
	parts := strings.SplitN(entry, "_", 4)
	if len(parts) != 3 {
		return "", podName{}, false
	}
	return parts[2], podName{parts[0], parts[1]}, true
}
