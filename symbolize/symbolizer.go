// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/symbolize/internal/dwarf"
)

// Options bound what a Symbolizer reads and keeps. Zero values mean the default.
type Options struct {
	DebugRoots  []string      // folders of separate debug files; default /usr/lib/debug
	MaxFiles    int           // open at a time, not counting debug files; default 1024
	MaxFileSize int64         // bytes; larger files get no names; default 16 GiB
	MaxSymbols  int           // read of one file; default 4 Mi (48 MiB of memory)
	MaxTime     time.Duration // spent on the DWARF of one file; default 5 s
	MaxInflated int64         // bytes of decompressed debug information of one file; default 128 MiB
	MaxMemory   int64         // bytes of tables of all files together; default 256 MiB
}

func (o Options) withDefaults() Options {
	if o.DebugRoots == nil {
		o.DebugRoots = []string{"/usr/lib/debug"}
	}
	o.MaxFiles = cmp.Or(o.MaxFiles, 1<<10)
	o.MaxFileSize = cmp.Or(o.MaxFileSize, 16<<30)
	o.MaxSymbols = cmp.Or(o.MaxSymbols, 4<<20)
	o.MaxTime = cmp.Or(o.MaxTime, 5*time.Second)
	o.MaxInflated = cmp.Or(o.MaxInflated, 128<<20)
	o.MaxMemory = cmp.Or(o.MaxMemory, 256<<20)
	return o
}

// Stats say what a Symbolizer has, and what it left out.
type Stats struct {
	Files    int   // open now
	Rejected int   // handed over but not readable: not ELF, truncated, too large
	Limited  int   // have more symbols or debug information than Options allow
	Evicted  int   // closed because of MaxFiles
	Memory   int64 // bytes of tables, about
}

// Symbolizer names addresses. It is safe for concurrent use.
type Symbolizer struct {
	options Options

	mu      sync.Mutex // taken before object.mu, never while holding one
	objects map[string]*object
	stamp   uint64
	stats   Stats
	warned  map[string]bool
	slow    map[*object]bool // took all their time
	jit     map[uint32]*perfMap
	closed  bool
}

// New returns a Symbolizer without files.
func New(o Options) *Symbolizer {
	return &Symbolizer{
		options: o.withDefaults(),
		objects: map[string]*object{},
		warned:  map[string]bool{},
		slow:    map[*object]bool{},
		jit:     map[uint32]*perfMap{},
	}
}

// Close closes all files. Frames still names what it can without them.
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

// identity is what names are cached by. A build id alone is no more than a claim of the file: with a
// copy of another's a process would have its own names put to the code of others.
func identity(key string, m *callstack.Mapping) string {
	if m != nil && m.BuildID != "" {
		return key + " build id " + m.BuildID
	}
	return key
}

// AddFile hands over the open file of a mapping, and f with it: it is closed by
// Close, when it must make room for others, or at once if the file is already
// known or cannot be read. Names can be resolved after the process has gone.
//
// key tells files apart; it must not be the process's to choose. root is the process's root folder,
// such as /proc/1234/root, to look for separate debug files in; "" for none.
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
		s.warn(fmt.Sprintf("no names of %s: %s", fileName(m), untrusted.Clean(err.Error())))
		return
	}
	ob.id = id
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
			delete(s.objects, oldest)
			s.stats.Evicted++
			s.stats.Memory -= out.size
		}
		s.objects[ob.id] = ob
	}
	s.mu.Unlock()
	if out != nil {
		out.close()
	}
}

// byAge lists the files from the least recently used on.
func (s *Symbolizer) byAge() []string {
	return slices.SortedFunc(maps.Keys(s.objects), func(a, b string) int {
		return cmp.Compare(s.objects[a].used, s.objects[b].used)
	})
}

// Frames appends the frames of one address to dst, leaf first: inlined calls,
// then the function that holds them. address is an ELF virtual address that
// lies inside the call. There is always at least one frame, and each has a
// name: at worst "libfoo.so+0x1234".
func (s *Symbolizer) Frames(dst []callstack.Frame, key string, m *callstack.Mapping, address uint64) []callstack.Frame {
	s.mu.Lock()
	options := s.options
	ob := s.objects[identity(key, m)]
	if ob != nil {
		s.stamp++
		ob.used = s.stamp
	}
	if len(s.slow) >= maxSlow && !s.slow[ob] {
		options.MaxTime /= slowDivisor
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

// When so many files took all the time that one may, each further one gets a part of it: a
// process can map any number of them.
const maxSlow, slowDivisor = 16, 20

// account adds up the memory after ob was used, and unloads the tables of
// others if it is too much.
func (s *Symbolizer) account(ob *object) {
	ob.mu.Lock()
	size, warning, limited := ob.memory(), ob.warning(), errors.Is(ob.problem, dwarf.ErrLimit)
	slow := ob.exhausted(s.options)
	ob.mu.Unlock()

	s.mu.Lock()
	defer s.mu.Unlock()
	if slow && len(s.slow) < maxSlow {
		s.slow[ob] = true
	}
	if warning != "" && s.warn(warning) && limited {
		s.stats.Limited++
	}
	if s.objects[ob.id] != ob {
		return // evicted meanwhile
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

// warn keeps a warning; false if it is known or there are too many.
func (s *Symbolizer) warn(text string) bool {
	const most = 256
	if s.warned[text] || len(s.warned) >= most {
		return false
	}
	s.warned[text] = true
	return true
}

// Warnings lists in order of the alphabet which files have no or incomplete
// names, and why; at most 256.
func (s *Symbolizer) Warnings() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.warned))
}

// Stats returns the counters as of now.
func (s *Symbolizer) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Files = len(s.objects)
	return st
}

// deletedSuffix is what the kernel adds to the path of a file without a name.
const deletedSuffix = " (deleted)"

// fileName is the base name of a mapped file.
func fileName(m *callstack.Mapping) string {
	if m == nil || m.Path == "" {
		return "[unknown]"
	}
	return cmp.Or(untrusted.Clean(path.Base(strings.TrimSuffix(m.Path, deletedSuffix))), "[unknown]")
}

// unnamed stands for a function without a name.
func unnamed(m *callstack.Mapping, address uint64) string {
	return fmt.Sprintf("%s+%#x", fileName(m), address)
}
