// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"fmt"
	"os"
	"slices"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/fileid"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/patches"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// The kernel sets a probe in all processes that map the file, also in those that are not traced.
// While any process has other code in its memory than the file has there (see package patches), the
// file has probes in single processes only: see apart.go. The look comes right before the attach.
// Later, a process must make the code writable to change it. The kernel reports the new mapping,
// and Probe looks again.

// readCode reads what the probes in a file rely on.
func (s *Files) readCode(f *os.File, l libraries.Mapped) (*patches.Code, error) {
	return patiently(l.Holder(), f, min(s.patience, readPatience), func(f *os.File) (*patches.Code, error) {
		list, err := s.prober.functions(f, l.Layer)
		if err != nil {
			return nil, err
		}
		return patches.Read(f, list)
	})
}

// refuse reports whether the open file must not be probed, and warns if so.
func (s *Files) refuse(x *file, f *os.File) bool {
	if x.code.IsEmpty() {
		return false
	}
	if s.options.Meanwhile != nil {
		s.mapped.note(s.options.Meanwhile())
	}
	list := s.compare(x.code, pathOf(f), s.mapped.of(x.first.File))
	if len(list) > 0 {
		s.setPatched(x, list)
	}
	return len(list) > 0
}

// takeBack detaches the probes from files in found that a process has changed, in its memory or on
// disk. Those that changed on disk are forgotten, so that they are probed again.
func (s *Files) takeBack(found []libraries.Mapped) {
	looked := map[libraries.FileKey]bool{}
	for _, l := range found {
		x := s.known[l.File]
		if x == nil || x.probes == nil || x.code == nil || looked[l.File] {
			continue
		}
		looked[l.File] = true
		if s.forgetChanged(l.File) {
			continue
		}
		list := s.compare(x.code, pathOf(x.origin.file), ofFile(found, l.File))
		if list = s.putOff(list); len(list) > 0 {
			s.detachFrom(x)
			s.setPatched(x, list)
			s.reviewWrappers() // those of the runtime see what the driver's did
			s.probeApart(x, s.mapped.of(l.File))
		}
	}
}

// putOff removes the processes whose memory could not be compared from a list, and has them looked
// at again. The probes are set in them already: one that changes code under them and stalls a look
// harms itself alone.
func (s *Files) putOff(list []patches.Patch) []patches.Patch {
	return slices.DeleteFunc(list, func(p patches.Patch) bool {
		if p.Err != nil && s.options.Again != nil {
			s.options.Again(p.PID)
		}
		return p.Err != nil
	})
}

// forgetChanged detaches the probes from a file whose code has changed since it was probed, and
// forgets it: the kernel would set breakpoints for instructions that are no more.
func (s *Files) forgetChanged(key libraries.FileKey) bool {
	x := s.known[key]
	if len(x.pids()) == 0 || x.code == nil || x.origin.file == nil {
		return false
	}
	now, err := fileid.Stat(int(x.origin.file.Fd()))
	if err != nil || now == x.version {
		return false
	}
	x.version = now
	f, err := os.Open(pathOf(x.origin.file))
	if err != nil {
		return false
	}
	defer f.Close()
	if x.code.Same(f) {
		return false // only its rights or links have changed
	}
	s.options.Warn(0, x.first.Name+" was overwritten while it was probed: calls may be missing")
	s.detachFrom(x)
	s.drop([]libraries.FileKey{key})
	return true
}

// takeUnpatched forgets a file that no process has changed in its memory any more, and returns its
// mappings. It returns nil for any other file, and as long as a process has probes of its own:
// calls would be missed while they are exchanged.
func (s *Files) takeUnpatched(key libraries.FileKey) []libraries.Mapped {
	x, mapped := s.known[key], s.mapped.of(key)
	if !x.isApart() || len(mapped) == 0 {
		return nil
	}
	before := slices.DeleteFunc(slices.Clone(mapped), func(l libraries.Mapped) bool { return !slices.Contains(x.patched, l.PID) })
	x.patched, x.noApart = nil, false
	s.addPatched(x, s.compare(x.code, pathOf(x.origin.file), before))
	s.leaveEnded(x, mapped)
	if x.isApart() {
		s.probeApart(x, mapped) // also in children that were forked since
		return nil
	}
	s.drop([]libraries.FileKey{key})
	return mapped
}

// detachFrom detaches the probes from a file that stays known.
func (s *Files) detachFrom(x *file) {
	if s.options.TakenBack != nil {
		s.options.TakenBack()
	}
	detach(s.takeProbes(x)...)
	s.driverUnseen = s.driverUnseen || x.first.Layer == cudaapi.Driver && !x.first.Program
}

// setPatched notes the processes that changed a file in their memory, and warns of the first.
func (s *Files) setPatched(x *file, list []patches.Patch) {
	x.patched, x.noApart = nil, false
	s.addPatched(x, list)
	if key := x.first.File; list[0].Err != nil && s.doubts[key] == nil {
		s.doubts[key] = &doubt{}
	}
	s.warnPatched(x, list)
}

// addPatched notes further processes.
func (s *Files) addPatched(x *file, list []patches.Patch) {
	for _, p := range list {
		x.patched = append(x.patched, p.PID)
		x.noApart = x.noApart || p.Err != nil || p.Trap
	}
	if x.noApart {
		detach(s.takeProbes(x)...)
	}
}

// warnPatched warns of the first process in a list.
func (s *Files) warnPatched(x *file, list []patches.Patch) {
	who := fmt.Sprintf("process %d (%s)", list[0].PID, untrusted.Clean(procfs.Comm(list[0].PID)))
	if n := len(list) - 1; n > 0 {
		who += fmt.Sprintf(", as well as %d more,", n)
	}
	where := "in any process"
	if s.probesApart(x) {
		where = "there, only in the other processes"
	}
	s.options.Warn(0, fmt.Sprintf("%s %v: %s is not probed %s. %s: %s", who, list[0], x.first.Name, where, consequence[x.first.Layer], PatchRemedy))
}

// consequence is what is missing where a file is not probed.
var consequence = map[cudaapi.Layer]string{
	cudaapi.Driver:  "Missing are calls of the driver that do not come through the CUDA runtime",
	cudaapi.Runtime: "Missing are calls of the runtime that do not call the driver",
	cudaapi.Torch:   "Missing are the tensors",
	cudaapi.NCCL:    "Missing are the lines of code for whose communicators NCCL allocates",
}

// PatchRemedy is what a user can do to have a file probed that a process changed in its memory.
const PatchRemedy = "start the process with UCX_MEM_CUDA_HOOK_MODE=none, or detach the debugger"
