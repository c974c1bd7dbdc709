// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/symbolize/internal/dwarf"
)

// Stats counts the files of a Symbolizer and what it skipped.
type Stats struct {
	Files    int   // currently open
	Rejected int   // not readable: not ELF, truncated or too large
	Limited  int   // exceed the symbols or debug information that Options allows
	Evicted  int   // closed because of MaxFiles
	Memory   int64 // approximate bytes of tables
}

// Symbolizer names addresses. It is safe for concurrent use.
type Symbolizer struct {
	options Options

	mu      sync.Mutex // acquired before object.mu, never while holding it
	objects map[string]*object
	stamp   uint64
	stats   Stats
	warned  map[string]string // keys of files, by warning
	slow    map[*object]bool  // files that used up their time
	jit     map[uint32]*perfMap
	closed  bool
}

// New returns a Symbolizer without files.
func New(o Options) *Symbolizer {
	return &Symbolizer{
		options: o.withDefaults(),
		objects: map[string]*object{},
		warned:  map[string]string{},
		slow:    map[*object]bool{},
		jit:     map[uint32]*perfMap{},
	}
}

// Close closes all files. Afterwards, Frames returns the names that need no file.
func (s *Symbolizer) Close() error {
	s.mu.Lock()
	objects := s.objects
	s.objects, s.closed = map[string]*object{}, true
	s.jit = map[uint32]*perfMap{}
	s.mu.Unlock()
	for _, ob := range objects {
		ob.close()
	}
	return nil
}

// identity is the cache key of a file's names. It includes key because the build id is only the
// file's claim: with a copied build id, a process could get its own names onto the code of others.
func identity(key string, m *callstack.Mapping) string {
	if m != nil && m.BuildID != "" {
		return key + " build id " + m.BuildID
	}
	return key
}

// AddFile adds the file of a mapping and takes ownership of f. It closes f on Close, on eviction,
// or at once if the file is already known or unreadable. Names can be resolved after the process
// has exited.
//
// key distinguishes files; the process must not be able to choose it. root is the process's root
// folder, such as /proc/1234/root, in which to look for separate debug files; "" for none.
func (s *Symbolizer) AddFile(key string, m *callstack.Mapping, f *os.File, root string) {
	if m == nil {
		m = &callstack.Mapping{}
	}
	id := identity(key, m)
	s.mu.Lock()
	known := s.objects[id] != nil || s.closed
	s.mu.Unlock()
	if known {
		f.Close()
		return
	}
	ob, err := s.options.open(m, f, root)
	if err != nil {
		f.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stats.Rejected++
		s.warn(key, fmt.Sprintf("no names of %s: %s", fileName(m), untrusted.Clean(err.Error())))
		return
	}
	ob.key, ob.id = key, id
	s.insert(ob)
}

func (s *Symbolizer) insert(ob *object) {
	s.mu.Lock()
	out := ob // closed below, outside the lock
	if s.objects[ob.id] == nil && !s.closed {
		out = nil
		s.stamp++
		ob.used = s.stamp
		if len(s.objects) >= s.options.MaxFiles {
			oldest := s.byAge()[0]
			out = s.objects[oldest]
			s.remove(out)
			s.stats.Evicted++
		}
		s.objects[ob.id] = ob
	}
	s.mu.Unlock()
	if out != nil {
		out.close()
	}
}

// remove takes a file out of the tables; s.mu is held. The caller closes the file.
func (s *Symbolizer) remove(ob *object) {
	delete(s.objects, ob.id)
	delete(s.slow, ob)
	s.stats.Memory -= ob.size
}

// byAge lists the files, least recently used first.
func (s *Symbolizer) byAge() []string {
	return slices.SortedFunc(maps.Keys(s.objects), func(a, b string) int {
		return cmp.Compare(s.objects[a].used, s.objects[b].used)
	})
}

// AppendFrames appends the frames of one address to dst, leaf first: inlined calls, then the
// function that contains them. address is an ELF virtual address inside the call. AppendFrames
// appends at least one frame, and each has a name, at worst "libfoo.so+0x1234".
func (s *Symbolizer) AppendFrames(dst []callstack.Frame, key string, m *callstack.Mapping, address uint64) []callstack.Frame {
	s.mu.Lock()
	options := s.options
	ob := s.objects[identity(key, m)]
	if ob != nil {
		s.stamp++
		ob.used = s.stamp
	}
	if len(s.slow) >= maxSlow && !s.slow[ob] {
		options.MaxTime /= slowDivisor
		options.MaxInflated /= slowDivisor
	}
	s.mu.Unlock()

	var frames []callstack.Frame
	if ob != nil {
		frames = ob.frames(address, options)
		s.account(ob)
	}
	if len(frames) == 0 {
		return append(dst, callstack.Frame{Function: unnamed(m, address), Address: address, Mapping: m})
	}
	for _, f := range frames {
		f.Mapping = m
		if f.Function == "" {
			f.Function = unnamed(m, address)
		}
		dst = append(dst, f)
	}
	return dst
}

// After maxSlow files used up their time, each further file gets a fraction of it, and of what may
// be decompressed: a process can map any number of files.
const maxSlow, slowDivisor = 16, 20

// account updates the memory total after ob was used, and unloads tables of other files if the
// total is too high.
func (s *Symbolizer) account(ob *object) {
	ob.mu.Lock()
	size, warning, limited := ob.memory(), ob.warning(), errors.Is(ob.problem, dwarf.ErrLimit)
	slow := ob.exhausted(s.options)
	ob.mu.Unlock()

	s.mu.Lock()
	defer s.mu.Unlock()
	if warning != "" && s.warn(ob.key, warning) && limited {
		s.stats.Limited++
	}
	if s.objects[ob.id] != ob {
		return // evicted in the meantime
	}
	if slow && len(s.slow) < maxSlow {
		s.slow[ob] = true
	}
	s.stats.Memory += size - ob.size
	ob.size = size
	if s.stats.Memory <= s.options.MaxMemory {
		return
	}
	for _, id := range s.byAge() {
		old := s.objects[id]
		if old == ob || old.size == 0 || !old.mu.TryLock() {
			continue // in use
		}
		old.unload()
		old.mu.Unlock()
		s.stats.Memory -= old.size
		if old.size = 0; s.stats.Memory <= s.options.MaxMemory {
			return
		}
	}
}

// warn stores a warning about a file. It returns false if the warning is known or there are too
// many.
func (s *Symbolizer) warn(key, text string) bool {
	const most = 256
	if _, known := s.warned[text]; known || len(s.warned) >= most {
		return false
	}
	s.warned[text] = key
	return true
}

// Warnings lists, in alphabetical order, the files with missing or incomplete names and the
// reasons. It keeps at most 256.
func (s *Symbolizer) Warnings() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.warned))
}

// Stats returns the current counters.
func (s *Symbolizer) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Files = len(s.objects)
	return st
}
