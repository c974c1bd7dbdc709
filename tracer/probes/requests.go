// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/deadline"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// What the driver takes for itself shows only in its requests to the kernel, which are ioctls.
// Every process has an ioctl, so those of libc, and of libraries in front of it, are probed in the
// processes alone that use CUDA.

// requests is the probes of the layer System, by pid.
type requests map[uint32]*requestProbes

type requestProbes struct {
	started uint64 // of the process, as procfs.StartTicks: its pid may be used again
	sets    []*Set
}

// probeRequests probes the functions of the layer System in each traced process in found that has
// the driver and was not probed yet.
func (s *Files) probeRequests(found []libraries.Mapped) {
	if !s.options.Requests {
		return
	}
	for _, l := range found {
		if l.Layer != cudaapi.Driver || l.Program || l.IsOwn() || !s.options.Traced(l.PID) {
			continue
		}
		started := procfs.StartTicks(l.PID)
		if x := s.requests[l.PID]; x != nil {
			if x.started == started {
				continue
			}
			detach(s.takeRequests(func(pid uint32) bool { return pid == l.PID })...)
		}
		x := &requestProbes{started: started}
		s.requests[l.PID] = x
		switch {
		case !s.prober.CanAttachToOne():
			s.options.Warn(0, "--driver-objects needs probes in single processes, which Linux 6.6 to 6.9 do not have")
		case !s.apart.Take(l.PID, s.options.Owner(l.PID)):
			s.options.Warn(l.PID, fmt.Sprintf("process %d is one of too many whose requests to the driver would have to be probed: what the driver takes there is unexplained", l.PID))
		default:
			if x.sets = s.attachRequests(l.PID); len(x.sets) == 0 {
				s.apart.Give(l.PID)
			}
		}
	}
}

// attachRequests probes each file of a process that has a function of the layer System.
func (s *Files) attachRequests(pid uint32) (sets []*Set) {
	warn := func(err error) {
		if err != nil && procfs.Exists(pid) {
			s.options.Warn(pid, fmt.Sprintf("probe the requests of process %d to the driver: %v", pid, err))
		}
	}
	code, err := libraries.Code(pid)
	warn(err)
	parts := map[libraries.FileKey][]libraries.Mapped{}
	for _, l := range code {
		parts[l.File] = append(parts[l.File], l)
	}
	for _, l := range code {
		if parts[l.File] == nil {
			continue
		}
		set, err := s.attachRequestsOf(l, parts[l.File])
		if warn(err); set != nil {
			sets = append(sets, set)
			s.options.Probed(l, len(set.functions))
		}
		parts[l.File] = nil
	}
	return sets
}

// attachRequestsOf probes the functions of the layer System in one file, which its process maps at
// parts. It returns nil if the file has none, and an error if the process has other code in memory
// than on disk.
func (s *Files) attachRequestsOf(l libraries.Mapped, parts []libraries.Mapped) (*Set, error) {
	f, err := l.OpenFile()
	if err != nil {
		return nil, onlyStuck(err) // it was unmapped, or is no regular file
	}
	defer f.Close()
	code, err := s.readCode(f, l)
	if err != nil || code.IsEmpty() {
		return nil, onlyStuck(err) // it is not an ELF file, or has no such functions
	}
	if list := s.compare(code, pathOf(f), parts); len(list) > 0 {
		return nil, fmt.Errorf("%s has other code in memory than on disk", l.Name)
	}
	return s.attach(f, l, l.PID)
}

func onlyStuck(err error) error {
	if errors.Is(err, deadline.ErrStuck) {
		return err
	}
	return nil
}

// takeRequests returns the probes of requests in the processes that match, which have none any
// more, for the caller to detach.
func (s *Files) takeRequests(match func(pid uint32) bool) (sets []*Set) {
	for _, pid := range slices.Sorted(maps.Keys(s.requests)) {
		if x := s.requests[pid]; match(pid) {
			sets = append(sets, x.sets...)
			if len(x.sets) > 0 {
				s.apart.Give(pid)
			}
			delete(s.requests, pid)
		}
	}
	return sets
}
