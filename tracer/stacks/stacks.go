// SPDX-License-Identifier: Apache-2.0

// Package stacks keeps the call stacks of a session: it reads them from the kernel half's ring, and
// names their native frames when they are asked for.
package stacks

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/symbolize"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger/quota"
	"github.com/vramprof/vramprof/tracer/procfs"
	"github.com/vramprof/vramprof/tracer/unwind"
)

// Store keeps the frames of the stacks that the kernel has sent, until Evict drops those that
// nobody uses. Add and AddFile are the stack reader's and the loader's; any goroutine may call the
// other methods. Stack and Files may wait while another caller has a large file's names read; the
// others never wait for long.
type Store struct {
	// Locate, if it is set before the first stack, finds the file of a frame whose library was new
	// when its stack was taken (unwind.Unwinder.Locate). See Place.
	Locate func(pid uint32, f *unwind.Frame)

	symbols  *symbolize.Symbolizer
	perfMaps perfMaps         // Add's alone
	now      func() time.Time // time.Now, or a test's

	naming   sync.Mutex // guards mappings; taken before mu
	mappings map[unwind.File]*callstack.Mapping

	mu          sync.Mutex // guards what follows, never for long
	known       map[uint64]*stack
	sharedRaw   shared[unwind.Frame]
	sharedNamed shared[callstack.Frame]
	places      quota.ByProcess // places in known, by process and user
	unplaced    unplaced
	over        map[uint32]uint64 // stacks beyond the share of their process, by pid
	full        uint64            // such stacks of processes that found no room in over, or have ended
}

// stack is one stack of a process, with one of raw, named and parts; guarded by Store.mu.
type stack struct {
	raw   *copied[unwind.Frame]
	named *copied[callstack.Frame]
	parts [2]uint64 // of a joined one: see Join
	pid   uint32
	stage stage
	since time.Time // when it was sent, or last found in use; of a forgotten one, when it was forgotten
}

// A stack that nobody uses goes in two steps, since the kernel half sends each stack only once:
// when it was unused for a while, the kernel half forgets that it was sent, and sends it again with
// the next allocation from there. When it was unused as long again, nothing that was on its way at
// the first step can name it any more, and its frames go.
type stage uint8

const (
	stageKept stage = iota
	stageForgotten
)

func newStack(pid uint32) *stack { return &stack{pid: pid} }

// use notes that a stack was in use at a time.
func (x *stack) use(now time.Time) { x.stage, x.since = stageKept, now }

const (
	// Max is how many stacks a Store keeps at most: as many as the ledger has sites, 5 KB for one
	// of 30 frames. A process has a share of them, as the stacks of a hostile one never repeat.
	Max     = 1 << 18
	maxOver = 1 << 12 // processes
)

// New returns a Store of at most so many stacks.
func New(most int, names symbolize.Options) *Store {
	return &Store{
		symbols:     symbolize.New(names),
		perfMaps:    newPerfMaps(),
		now:         time.Now,
		known:       map[uint64]*stack{},
		places:      quota.NewByProcess(most),
		unplaced:    newUnplaced(),
		over:        map[uint32]uint64{},
		mappings:    map[unwind.File]*callstack.Mapping{},
		sharedRaw:   newShared[unwind.Frame](),
		sharedNamed: newShared[callstack.Frame](),
	}
}

// AddFile keeps a new file open, so that its names can be read when the process is gone.
func (s *Store) AddFile(file unwind.NewFile) {
	f, err := untrusted.OpenRegular(fmt.Sprintf("/proc/%d/map_files/%x-%x", procfs.Thread(file.PID), file.Start, file.End))
	if err != nil {
		return // its frames are named by file and offset
	}
	m := &callstack.Mapping{Path: file.Path, BuildID: file.BuildID}
	s.symbols.AddFile(file.ID, m, f, fmt.Sprintf("/proc/%d/root", procfs.Thread(file.PID)))
}

// Add keeps a new stack of a process of that user, as ledger.Process has it. It looks up names of
// code in no file at once, while the process is there.
func (s *Store) Add(stack unwind.Stack, user uint32) {
	for i := range stack.Frames {
		if f := &stack.Frames[i]; f.JIT {
			f.Function = s.jitName(stack.PID, user, f.Address)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.known[stack.ID]
	if x == nil {
		if !s.room(stack.PID, user) {
			return
		}
		x = newStack(stack.PID)
		s.known[stack.ID] = x
	}
	s.sharedRaw.give(x.raw)
	s.sharedNamed.give(x.named)
	x.raw, x.named = s.sharedRaw.take(stack.Frames), nil
	x.use(s.now())
	if s.Locate != nil && isUnplaced(stack.Frames) {
		s.unplaced.add(stack.PID, user, stack.ID)
		s.place(stack.PID, stack.ID) // the file may have become known since the stack was decoded
	}
}

// room reports whether one more stack of a process may be kept, and counts it; s.mu is held.
// Allocations at a stack that is not kept are booked all the same, without frames.
func (s *Store) room(pid, user uint32) bool {
	if s.places.Take(pid, user) {
		return true
	}
	if _, known := s.over[pid]; known || len(s.over) < maxOver {
		s.over[pid]++
	} else {
		s.full++
	}
	return false
}

// Shrink lowers the shares of processes and users to those of a Store of at most limit stacks.
func (s *Store) Shrink(limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places.Shrink(limit)
}

// Lost returns how many stacks have no frames here, as they were beyond the share of their process,
// by pid.
func (s *Store) Lost() map[uint32]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.over)
}

// Stack returns the frames of a stack, leaf first, and none for an unknown id. It names native
// frames on the first call, which takes long for a large file.
func (s *Store) Stack(id uint64) []callstack.Frame {
	if frames, ok := s.joined(id); ok {
		return frames
	}
	return s.plain(id)
}

// plain is Stack of one that is not joined.
func (s *Store) plain(id uint64) []callstack.Frame {
	if frames, _, _ := s.get(id); frames != nil {
		return frames
	}
	s.naming.Lock()
	defer s.naming.Unlock()
	frames, raw, waits := s.get(id)
	if frames != nil || raw == nil {
		return frames
	}
	frames = make([]callstack.Frame, 0, len(raw.frames))
	for _, f := range raw.frames {
		frames = s.name(frames, f)
	}
	if waits {
		return frames
	}
	return s.setNames(id, raw, frames)
}

// get returns the named frames of a stack, or the raw ones if they are not named yet, and whether a
// frame of those still waits for its file.
func (s *Store) get(id uint64) (named []callstack.Frame, raw *copied[unwind.Frame], waits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch x := s.known[id]; {
	case x == nil:
		return nil, nil, false
	case x.named != nil:
		return x.named.frames, nil, false
	default:
		return nil, x.raw, s.unplaced.by[x.pid][id]
	}
}

// setNames keeps the named frames of a stack instead of the raw ones, unless it was dropped or sent
// again meanwhile.
func (s *Store) setNames(id uint64, raw *copied[unwind.Frame], frames []callstack.Frame) []callstack.Frame {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.known[id]
	if x == nil || x.raw != raw {
		return frames
	}
	x.named = s.sharedNamed.take(frames)
	s.sharedRaw.give(x.raw)
	x.raw = nil
	return x.named.frames
}

// Passes reports whether a frame of the stack is in a file that is reports true for.
func (s *Store) Passes(id uint64, is func(file string) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.partsOf(id), func(id uint64) bool { return s.known[id].passes(is) })
}

func (x *stack) passes(is func(file string) bool) bool {
	switch {
	case x == nil:
	case x.named != nil:
		return slices.ContainsFunc(x.named.frames, func(f callstack.Frame) bool { return f.Mapping != nil && is(f.Mapping.Path) })
	case x.raw != nil:
		return slices.ContainsFunc(x.raw.frames, func(f unwind.Frame) bool { return f.File != nil && is(f.File.Path) })
	}
	return false
}

// Whole reports whether the stack is known to its end.
func (s *Store) Whole(id uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(s.partsOf(id), func(id uint64) bool { return !s.known[id].isWhole() })
}

func (x *stack) isWhole() bool {
	switch {
	case x == nil:
	case x.named != nil:
		n := len(x.named.frames)
		return n > 0 && !x.named.frames[n-1].Mark
	case x.raw != nil:
		n := len(x.raw.frames)
		return n > 0 && x.raw.frames[n-1].Error == ""
	}
	return false
}

// Files returns the mapped files of the stacks that were named so far, in no order.
func (s *Store) Files() []unwind.File {
	s.naming.Lock()
	defer s.naming.Unlock()
	return slices.Collect(maps.Keys(s.mappings))
}

func (s *Store) name(frames []callstack.Frame, f unwind.Frame) []callstack.Frame {
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
	return s.symbols.AppendFrames(frames, f.File.ID, m, f.Address)
}

// jitName names code in no file. It reads the process's perf map again when that does not have the
// address.
func (s *Store) jitName(pid, user uint32, address uint64) string {
	f, ok := s.symbols.JITFrame(pid, address)
	if !ok {
		s.perfMaps.refresh(pid, user, s.now, s.symbols)
		f, _ = s.symbols.JITFrame(pid, address)
	}
	return f.Function
}

// maxNameWarnings is of how many files, and of how many processes, there are warnings.
const maxNameWarnings = 8

// Warnings returns which files have no or incomplete names, and which processes had too many
// stacks.
func (s *Store) Warnings() []string {
	list := s.symbols.Warnings()
	if more := len(list) - maxNameWarnings; more > 0 {
		list = append(list[:maxNameWarnings], fmt.Sprintf("names of further files are incomplete: %d", more))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full > 0 {
		list = append(list, fmt.Sprintf("too many different stacks: of further processes, or of some that have ended, %d have no frames", s.full))
	}
	for _, pid := range slices.Sorted(maps.Keys(s.over))[:min(len(s.over), maxNameWarnings)] {
		list = append(list, fmt.Sprintf("process %d has too many different stacks: %d beyond its first %d have no frames", pid, s.over[pid], s.places.Held(pid)))
	}
	return list
}

// Close closes the files whose names were not read yet.
func (s *Store) Close() { s.symbols.Close() }
