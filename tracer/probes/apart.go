// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/deadline"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// While a process has other code in its memory than its file has, the file is probed in each of the
// other traced processes by itself: the breakpoints of such a probe are in that process alone. A
// process that maps the file later, and a forked child, has them from its scan on, so its first
// calls can be missing.

// probesApart reports whether a file may be probed in single processes. It may not where a probe in
// one process is felt in another: if that one stalls readers of its memory, since the kernel takes
// a lock of each process that maps the file; and if it has a breakpoint where a function is probed,
// whose trap the kernel would take for that of a probe.
func (s *Files) probesApart(x *file) bool {
	return s.prober.CanAttachToOne() && x.code != nil && x.origin.file != nil && !x.noApart
}

// probeApart probes a file in those of the traced processes in mapped that do not have probes of it
// yet, and takes them from those that have changed the code.
func (s *Files) probeApart(x *file, mapped []libraries.Mapped) {
	if !s.probesApart(x) {
		return
	}
	byPID := map[uint32][]libraries.Mapped{}
	for _, l := range mapped {
		if !l.IsOwn() && s.options.Traced(l.PID) {
			byPID[l.PID] = append(byPID[l.PID], l)
		}
	}
	for _, pid := range slices.Sorted(maps.Keys(byPID)) {
		s.probeIn(x, pid, byPID[pid])
	}
}

// probeIn probes a file in one process that maps it at parts.
func (s *Files) probeIn(x *file, pid uint32, parts []libraries.Mapped) {
	started := procfs.StartTicks(pid)
	here, probed := x.apart[pid]
	if probed && here.started != started {
		s.leave(x, pid)
		probed = false
	}
	if slices.Contains(x.patched, pid) || !s.probesApart(x) {
		return
	}
	compare := s.compare
	if probed {
		compare = s.compareProbed
	}
	if list := compare(x.code, pathOf(x.origin.file), parts); len(list) > 0 {
		switch {
		case list[0].Err != nil && s.options.Again != nil:
			s.options.Again(pid)
		case list[0].Err == nil:
			s.leave(x, pid)
			s.addPatched(x, list)
			s.warnPatched(x, list)
		}
		return
	}
	if probed {
		return
	}
	if !s.apart.Take(pid, s.options.Owner(pid)) {
		s.options.Warn(pid, fmt.Sprintf("process %d is one of too many in which %s would have to be probed by itself, because another process overwrote it: calls are missing", pid, x.first.Name))
		return
	}
	l := parts[0]
	set, err := s.attachIn(x, l)
	if err != nil {
		s.apart.Give(pid)
		if errors.Is(err, deadline.ErrStuck) && s.options.Again != nil {
			s.options.Again(pid)
			return
		}
		if procfs.Exists(pid) {
			s.options.Warn(pid, fmt.Sprintf("probe %s of process %d: %v", l.Name, pid, err))
		}
		return
	}
	if x.apart == nil {
		x.apart = apart{}
	}
	x.apart[pid] = alone{set, started}
	x.mappedBy(l)
	if l.Layer == cudaapi.Torch {
		s.tensors.Store(true)
	}
	s.options.Probed(l, len(set.functions))
}

// attachIn probes a file in the process of l alone.
func (s *Files) attachIn(x *file, l libraries.Mapped) (*Set, error) {
	f, err := os.Open(pathOf(x.origin.file))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return s.attach(f, l, l.PID)
}

// leave detaches the probes of a file from one process.
func (s *Files) leave(x *file, pid uint32) {
	if here, ok := x.apart[pid]; ok {
		here.probes.Close()
		delete(x.apart, pid)
		s.apart.Give(pid)
	}
}

// probeFoundApart probes files in single processes of which a scan found mappings.
func (s *Files) probeFoundApart(found []libraries.Mapped) {
	for key, x := range s.known {
		if x.isApart() {
			s.probeApart(x, ofFile(found, key))
		}
	}
}

// leaveEnded detaches the probes of a file from processes that do not map it any more.
func (s *Files) leaveEnded(x *file, mapped []libraries.Mapped) {
	for pid := range x.apart {
		if !slices.ContainsFunc(mapped, func(l libraries.Mapped) bool { return l.PID == pid }) {
			s.leave(x, pid)
		}
	}
}

// isApart reports whether the file is probed in single processes only, or in none.
func (x *file) isApart() bool { return len(x.patched) > 0 || len(x.apart) > 0 }

// pids returns the processes in which the file is probed by itself, 0 if it is probed in all, or
// none.
func (x *file) pids() []uint32 {
	switch {
	case x == nil:
		return nil
	case x.probes != nil:
		return []uint32{0}
	default:
		return slices.Sorted(maps.Keys(x.apart))
	}
}
