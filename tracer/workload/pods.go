// SPDX-License-Identifier: Apache-2.0

package workload

import "strings"

// maxPods and maxContainers are the most entries read from a log folder; the kubelet keeps those of
// running pods and of some that have ended. Each start of a container has an entry.
const maxPods, maxContainers = 4096, 8192

// pods names pods and their containers by the folders in which the kubelet keeps their logs.
type pods struct {
	pods       names[podName] // by uid
	containers names[string]  // by id
}

type podName struct{ namespace, pod string }

// newPods returns the pods of the host whose file system is at one of these roots.
func newPods(roots ...string) *pods {
	p := &pods{pods: names[podName]{most: maxPods, parse: parsePod}, containers: names[string]{most: maxContainers, parse: parseContainer}}
	for _, root := range roots {
		p.pods.dirs = append(p.pods.dirs, root+"/var/log/pods")
		p.containers.dirs = append(p.containers.dirs, root+"/var/log/containers")
	}
	return p
}

// pod looks up a pod by its uid, "" if it is unknown.
func (p *pods) pod(uid string) (namespace, pod string) {
	name := p.pods.find(uid)
	return name.namespace, name.pod
}

// container looks up a container of a pod by its id, "" if it is unknown.
func (p *pods) container(id string) string { return p.containers.find(id) }

// parsePod splits NAMESPACE_POD_UID, a folder that exists before a container starts. None of the
// three contains '_'.
func parsePod(entry string) (uid string, name podName, ok bool) {
	parts := strings.SplitN(entry, "_", 4)
	if len(parts) != 3 {
		return "", podName{}, false
	}
	return parts[2], podName{parts[0], parts[1]}, true
}

// parseContainer splits POD_NAMESPACE_CONTAINER-ID.log.
func parseContainer(entry string) (id, name string, ok bool) {
	parts := strings.SplitN(strings.TrimSuffix(entry, ".log"), "_", 4)
	if len(parts) != 3 {
		return "", "", false
	}
	last := parts[2]
	if id = containerID(last); id == "" || len(last) < len(id)+2 {
		return "", "", false
	}
	return id, last[:len(last)-len(id)-1], true
}
