// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"maps"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// stopsWithin is how long after a stop of its child a parent may stop itself on a busy machine.
const stopsWithin = 5 * time.Second

// parents are the processes of the command whose children were stopped lately, and until when each
// is watched. su, runuser and sudo stop themselves when their child stops, and wait for somebody to
// continue them: the command would never end.
type parents map[uint32]time.Time

// watch adds the ancestors of a process that was stopped, as far as they are the command's.
func (p parents) watch(pid uint32, now time.Time, isHeld func(pid uint32) bool) {
	for pid = procfs.Parent(pid); pid != 0 && isHeld(pid); pid = procfs.Parent(pid) {
		p[pid] = now.Add(stopsWithin)
	}
}

// release continues those that have stopped, and forgets those that are watched no more.
func (p parents) release(now time.Time) {
	for pid := range p {
		if procfs.IsStopped(pid) {
			_ = unix.Kill(int(pid), unix.SIGCONT)
		}
	}
	maps.DeleteFunc(p, func(_ uint32, until time.Time) bool { return now.After(until) })
}

// isHeld reports whether a process is the command or its child, by the kernel half's list.
func isHeld(list *ebpf.Map, pid uint32) bool {
	var entry bpf.Process
	return list.Lookup(pid, &entry) == nil && entry.Held != 0
}
