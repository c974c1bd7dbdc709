// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/deadline"
	"github.com/vramprof/vramprof/tracer/fileid"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// Probe probes the files in found that are not probed yet and that traced processes, or this
// process, map. It sorts found. PyTorch's libraries come first: a tensor that is missed in a
// segment that is seen would count as PyTorch's cache. The runtime comes before the driver, whose
// calls would else be reported under their own names.
//
// A file that a process has changed in its memory is not probed there; see patched.go.
func (s *Files) Probe(found []libraries.Mapped) {
	s.mapped.note(found)
	s.takeBack(found)
	s.probeFoundApart(found)
	s.probeRequests(found)
	order := [...]int{cudaapi.Torch: 0, cudaapi.Runtime: 1, cudaapi.Driver: 2, cudaapi.NCCL: 3}
	slices.SortStableFunc(found, func(a, b libraries.Mapped) int { return cmp.Compare(order[a.Layer], order[b.Layer]) })
	probed := map[libraries.FileKey]bool{}
	for _, l := range found {
		switch {
		case !l.IsOwn() && !s.options.Traced(l.PID), probed[l.File]:
		case s.isProbed(l):
			probed[l.File] = true
			s.known[l.File].mappedBy(l)
		default:
			s.probe(l)
		}
	}
	s.noteReports(found)
}

// noteReports notes the processes in found that report tensors: each may get links of its own.
func (s *Files) noteReports(found []libraries.Mapped) {
	noted := map[uint32]*reportProbe{}
	for _, l := range found {
		x := s.known[l.File]
		if l.Layer != cudaapi.Torch || l.IsOwn() || x == nil || x.probes == nil || !s.options.Traced(l.PID) {
			continue
		}
		if r := x.probes.reports; r != nil && noted[l.PID] != r {
			noted[l.PID] = r
			if err := x.probes.prober.reports.mappedBy(r, l.PID); err != nil {
				s.options.Warn(l.PID, err.Error())
			}
		}
	}
}

// isProbed reports whether a file is probed, or could not be probed and has not changed since. A
// file may be overwritten, and after its deletion another file may get its inode number.
func (s *Files) isProbed(l libraries.Mapped) bool {
	known, tried := s.known[l.File]
	if !tried || known.probes != nil { // a probe keeps the inode in use
		return tried
	}
	id, err := l.Version()
	return err != nil || id == known.version
}

// probe attaches to one file. If that fails, it warns, and the file is tried again only after a
// change.
func (s *Files) probe(l libraries.Mapped) {
	defer func() {
		s.driverUnseen = s.driverUnseen || l.Layer == cudaapi.Driver && !l.Program && !l.IsOwn() && !s.has(l.File)
	}()
	if !s.mayProbe(l) {
		return
	}
	f, err := l.OpenFile()
	if isGone(err) || errors.Is(err, deadline.ErrStuck) {
		s.putBack(l)
		return
	}
	x := &file{holder: l.Holder(), first: l, version: identify(l, f)}
	x.mappedBy(l)
	s.known[l.File] = x
	s.tried[l.Holder()]++
	if err != nil {
		s.options.Warn(0, err.Error())
		return
	}
	defer f.Close()
	if l.Layer == cudaapi.Torch && s.options.NoTensors {
		return
	}
	x.origin = originOf(l, f)
	if x.code, err = s.readCode(f, l); err == nil && s.refuse(x, f) {
		s.probeApart(x, s.mapped.of(l.File))
		return
	}
	var set *Set
	if err == nil {
		set, err = s.attach(f, l, 0)
	}
	if errors.Is(err, deadline.ErrStuck) {
		s.postpone(x)
		return
	}
	if err != nil {
		x.origin.close()
		// Most programs do not contain cudart, and NCCL may create threads in other ways.
		if !l.Program && !(l.Layer == cudaapi.NCCL && errors.Is(err, errNoFunctions)) {
			s.options.Warn(l.PID, fmt.Sprintf("probe %s of process %d: %v", l.Name, l.PID, err))
		}
		return
	}
	x.probes = set
	if l.Layer == cudaapi.Torch {
		s.tensors.Store(true)
	}
	// A call that was entered before is found in the stacks of its driver calls.
	s.prober.name(set, func() (uint64, bool) { return s.options.FileID(l) })
	s.options.Probed(l, len(set.functions))
}

// putBack has a file tried again when the process that maps it is scanned again: it maps the file
// elsewhere, or stalls who opens or reads it.
func (s *Files) putBack(l libraries.Mapped) {
	if l.Holder() != ownPID {
		s.places.Give(l.Holder())
	}
	if procfs.Exists(l.PID) && s.options.Again != nil {
		s.options.Again(l.PID)
	}
}

// postpone forgets a file whose reads are stalled, so that it is tried again.
func (s *Files) postpone(x *file) {
	x.origin.close()
	delete(s.known, x.first.File)
	s.tried[x.holder]--
	s.putBack(x.first)
}

// isGone reports whether a file could not be opened because it was unmapped since the scan, or its
// process has ended.
func isGone(err error) bool { return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// identify returns the version of a file; f is nil if it could not be opened.
func identify(l libraries.Mapped, f *os.File) (id fileid.ID) {
	if f != nil {
		id, _ = fileid.Stat(int(f.Fd()))
	} else {
		id, _ = l.Version()
	}
	return id
}

// mayProbe reports whether one more file of a process may be probed, and counts it.
func (s *Files) mayProbe(l libraries.Mapped) bool {
	pid := l.Holder()
	if pid == ownPID || s.tried[pid] < maxFilesOfProcess && s.places.Take(pid, s.options.Owner(pid)) {
		return true
	}
	s.options.Warn(pid, fmt.Sprintf("process %d maps more CUDA libraries than are probed: calls of further ones are missing", pid))
	return false
}

// Review detaches probes of the runtime that report what the driver's report too, and attaches them
// again for a look; see wrapper. It also probes files again whose code has changed, and those that
// could not be compared. It is to be called every second.
func (s *Files) Review() {
	s.probeChanged()
	s.probeDoubted(time.Now())
	s.reviewWrappers()
}

// probeChanged probes files again whose code has changed on disk.
func (s *Files) probeChanged() {
	var again []libraries.Mapped
	for key := range s.known {
		if s.forgetChanged(key) {
			again = append(again, s.mapped.of(key)...)
		}
	}
	if len(again) > 0 {
		s.Probe(again)
	}
}

// probeDoubted probes the files again that could not be compared, if it is time.
func (s *Files) probeDoubted(now time.Time) {
	var again []libraries.Mapped
	for key, d := range s.doubts {
		x := s.known[key]
		if x == nil || !x.noApart {
			delete(s.doubts, key)
			continue
		}
		if now.Before(d.next) {
			continue
		}
		d.later(now)
		again = append(again, s.takeUnpatched(key)...)
	}
	if len(again) > 0 {
		s.Probe(again)
	}
}

// probeUnpatched probes the files in all processes that no process has changed in its memory any
// more. found lists what all processes map now.
func (s *Files) probeUnpatched(found []libraries.Mapped) {
	s.mapped = mappedFiles{}
	s.mapped.note(found)
	var again []libraries.Mapped
	for key := range s.known {
		again = append(again, s.takeUnpatched(key)...)
	}
	if len(again) > 0 {
		s.Probe(again)
	}
}

// Close detaches all probes; see detach.
func (s *Files) Close() {
	var sets []*Set
	for key, x := range s.known {
		sets = append(sets, s.takeProbes(x)...)
		x.origin.close()
		delete(s.known, key)
	}
	sets = append(sets, s.takeRequests(func(uint32) bool { return true })...)
	for key, set := range s.loaders {
		sets = append(sets, set)
		delete(s.loaders, key)
	}
	detach(sets...)
}
