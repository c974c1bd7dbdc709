// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/symbolize"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/procfs"
	"github.com/vramprof/vramprof/tracer/unwind"
)

// stacks keeps the frames of every stack that the kernel has sent, and names
// native frames when they are asked for.
type stacks struct {
	symbols     *symbolize.Symbolizer
	perfMapRead map[uint32]time.Time // by pid; the stack reader's

	naming   sync.Mutex // taken before mu
	mappings map[unwind.File]*callstack.Mapping

	mu          sync.Mutex // guards what follows, never for long
	raw         map[uint64][]unwind.Frame
	named       map[uint64][]callstack.Frame
	sharedRaw   shared[unwind.Frame]
	sharedNamed shared[callstack.Frame]
	kept        ledger.Holders    // of places in raw and named
	full        uint64            // stacks for which there was no room, of further processes
	over        map[uint32]uint64 // likewise, by pid
}

const (
	// maxStacks is as many as the ledger has sites: a stack of 30 frames takes 5 KB. A process has a share of them, as the
	// stacks of a hostile one never repeat.
	maxStacks = 1 << 18
	maxOver   = 1 << 12 // processes
)

func newStacks(most int, names symbolize.Options) *stacks {
	return &stacks{
		symbols:     symbolize.New(names),
		perfMapRead: map[uint32]time.Time{},
		raw:         map[uint64][]unwind.Frame{},
		named:       map[uint64][]callstack.Frame{},
		kept:        ledger.NewHolders(most),
		over:        map[uint32]uint64{},
		mappings:    map[unwind.File]*callstack.Mapping{},
		sharedRaw:   newShared[unwind.Frame](),
		sharedNamed: newShared[callstack.Frame](),
	}
}

// addFile keeps a new file open, so that its names can be read when the
// process is gone.
func (s *stacks) addFile(file unwind.NewFile) {
	f, err := untrusted.OpenRegular(fmt.Sprintf("/proc/%d/map_files/%x-%x", file.PID, file.Start, file.End))
	if err != nil {
		return // its frames are named by file and offset
	}
	m := &callstack.Mapping{Path: file.Path, BuildID: file.BuildID}
	s.symbols.AddFile(file.ID, m, f, fmt.Sprintf("/proc/%d/root", file.PID))
}

// add takes in a new stack of a user's process. Names of code in no file are looked up now, while
// the process is there.
func (s *stacks) add(stack unwind.Stack, user uint32) {
	for i := range stack.Frames {
		if f := &stack.Frames[i]; f.JIT {
			f.Function = s.jitName(stack.PID, f.Address)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, raw := s.raw[stack.ID]
	_, named := s.named[stack.ID]
	if !raw && !named && !s.room(stack.PID, user) {
		return
	}
	s.raw[stack.ID] = s.sharedRaw.one(stack.Frames)
	delete(s.named, stack.ID)
}

// room says whether one more stack of a process may be kept, and counts it; s.mu is held. What was allocated at
// one that is not kept is booked all the same, without a place.
func (s *stacks) room(pid, user uint32) bool {
	if s.kept.Take(pid, user) {
		return true
	}
	if _, known := s.over[pid]; known || len(s.over) < maxOver {
		s.over[pid]++
	} else {
		s.full++
	}
	return false
}

// shrink lowers the shares of processes and users.
func (s *stacks) shrink(limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept.Shrink(limit)
}

// lost counts the stacks of which the frames are not kept, by pid.
func (s *stacks) lost() map[uint32]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.over)
}

// Stack gives the frames of a stack, leaf first; none for an unknown id. The first one of a large file
// takes long, and keeps only those waiting who want names too.
func (s *stacks) Stack(id uint64) []callstack.Frame {
	if frames, _ := s.get(id); frames != nil {
		return frames
	}
	s.naming.Lock()
	defer s.naming.Unlock()
	frames, raw := s.get(id)
	if frames != nil || raw == nil {
		return frames
	}
	frames = make([]callstack.Frame, 0, len(raw))
	for _, f := range raw {
		frames = s.name(frames, f)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	frames = s.sharedNamed.one(frames)
	s.named[id] = frames
	if delete(s.raw, id); len(s.raw) == 0 && len(s.sharedRaw.known) > 0 {
		s.sharedRaw = newShared[unwind.Frame]() // nobody has them any more
	}
	return frames
}

// get returns what there is of a stack: its names, or what is to be named.
func (s *stacks) get(id uint64) ([]callstack.Frame, []unwind.Frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.named[id], s.raw[id]
}

// torchCUDA is the library of PyTorch's caching allocator.
const torchCUDA = "libc10_cuda.so"

// passes says whether a frame of the stack is in a library of that name.
func (s *stacks) passes(id uint64, library string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.named[id] {
		if f.Mapping != nil && strings.HasPrefix(path.Base(f.Mapping.Path), library) {
			return true
		}
	}
	for _, f := range s.raw[id] {
		if f.File != nil && strings.HasPrefix(path.Base(f.File.Path), library) {
			return true
		}
	}
	return false
}

// whole says whether the stack is known to its end.
func (s *stacks) whole(id uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if named := s.named[id]; len(named) > 0 {
		return !named[len(named)-1].Mark
	}
	raw := s.raw[id]
	return len(raw) > 0 && raw[len(raw)-1].Error == ""
}

func (s *stacks) name(frames []callstack.Frame, f unwind.Frame) []callstack.Frame {
	switch {
	case f.Error != "":
		return append(frames, callstack.Frame{Function: "[truncated: " + f.Error + "]", Mark: true})
	case f.JIT && f.Function == "":
		return append(frames, callstack.Frame{Function: "[code in no file]", Address: f.Address, Mark: true})
	case f.JIT:
		return append(frames, callstack.Frame{Function: f.Function, SystemName: f.Function})
	case f.Function != "":
		return append(frames, callstack.Frame{
			Function: untrusted.Clean(f.Function), File: untrusted.Clean(f.Source), Line: f.Line, StartLine: f.FirstLine, Python: true,
		})
	}
	m := s.mappings[*f.File]
	if m == nil {
		m = &callstack.Mapping{
			Path: f.File.Path, BuildID: f.File.BuildID, Start: f.File.Start, Limit: f.File.Limit, Offset: f.File.Offset,
		}
		s.mappings[*f.File] = m
	}
	return s.symbols.Frames(frames, f.File.ID, m, f.Address)
}

// perfMapInterval is the least time between two readings of one perf map file.
const perfMapInterval = time.Second

// jitName reads the process's perf map file again when it does not have the
// address.
func (s *stacks) jitName(pid uint32, address uint64) string {
	if f, ok := s.symbols.JIT(pid, address); ok {
		return f.Function
	}
	if time.Since(s.perfMapRead[pid]) < perfMapInterval {
		return ""
	}
	maps.DeleteFunc(s.perfMapRead, func(_ uint32, read time.Time) bool { return time.Since(read) >= perfMapInterval })
	s.perfMapRead[pid] = time.Now()
	file, err := procfs.OpenPerfMap(pid)
	if err != nil {
		return ""
	}
	defer file.Close()
	if err := s.symbols.AddPerfMap(pid, file); err != nil {
		return ""
	}
	f, _ := s.symbols.JIT(pid, address)
	return f.Function
}

// maxNameWarnings is how many files are named that have no or incomplete names.
const maxNameWarnings = 8

func (s *stacks) warnings() []string {
	list := s.symbols.Warnings()
	if more := len(list) - maxNameWarnings; more > 0 {
		list = append(list[:maxNameWarnings], fmt.Sprintf("names of further files are incomplete: %d", more))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full > 0 {
		list = append(list, fmt.Sprintf("too many different stacks: of further processes %d have no frames", s.full))
	}
	for _, pid := range slices.Sorted(maps.Keys(s.over))[:min(len(s.over), maxNameWarnings)] {
		list = append(list, fmt.Sprintf("process %d has too many different stacks: %d beyond its first %d have no frames", pid, s.over[pid], s.kept.Held(pid)))
	}
	return list
}

func (s *stacks) close() { s.symbols.Close() }
