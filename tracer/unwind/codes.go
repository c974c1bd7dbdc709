// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/lpm"
	"go.opentelemetry.io/ebpf-profiler/process"

	"github.com/vramprof/vramprof/bpf"
)

// CodeFile identifies a file that is mapped as code. It is the real file below overlayfs.
type CodeFile struct {
	Device  uint32 // the kernel's dev_t
	Inode   uint64
	Address uint64 // of the inode in the kernel's memory
	Size    uint64 // bytes
	Changed uint64 // ns, time of the last change of content or owner
}

// Code lists a process's mappings of code.
type Code struct {
	Files map[uint64]CodeFile // by start of the mapping
	// Hash of the mappings, equal for processes with equal mappings; 0: unknown.
	Layout uint64
}

// codes holds the mappings of code of all loaded processes. With them the kernel half walks stacks
// of processes that are not loaded yet, and Decode finds the files of such stacks.
type codes struct {
	kernel *ebpf.Map // nil if the kernel half does not support this

	mu    sync.Mutex // guards files; held briefly
	files map[host.FileID]*knownFile
}

// knownFile is a file with unwind tables.
type knownFile struct {
	id       libpf.FileID
	path     string
	buildID  string
	keys     []bpf.CodeKey
	segments []*File   // mapped as code
	used     time.Time // when a process that maps it was loaded last, or found to run
	told     bool      // onFile was called with it, and it was mapped since
}

// maxSegments limits the segments of one file; libraries have one or two.
const maxSegments = 16

// fileMemory is how long a file that no process maps is remembered: the profiler remembers it for 6
// hours, in which it does not report it again.
const fileMemory = 7 * time.Hour

// noteFile adds a file whose tables were just loaded. It returns the files that went, as there was
// no room for all.
func (c *codes) noteFile(id libpf.FileID, path, buildID string) (dropped []*knownFile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files == nil {
		c.files = map[host.FileID]*knownFile{}
	}
	key := host.FileIDFromLibpf(id)
	known := c.files[key]
	if known == nil {
		if len(c.files) >= maxFiles {
			dropped = c.dropOldest()
		}
		known = &knownFile{}
		c.files[key] = known
	}
	known.id, known.path, known.buildID, known.used, known.told = id, path, buildID, time.Now(), true
	return dropped
}

// dropOldest makes room for a quarter of the files; c.mu is held.
func (c *codes) dropOldest() (dropped []*knownFile) {
	ids := slices.SortedFunc(maps.Keys(c.files), func(a, b host.FileID) int { return c.files[a].used.Compare(c.files[b].used) })
	for _, id := range ids[:maxFiles/4] {
		dropped = append(dropped, c.files[id])
		c.clear(id)
		delete(c.files, id)
	}
	return dropped
}

// evict notes which files are mapped, and drops those that were not for long.
func (c *codes) evict(now time.Time, mapped map[host.FileID]bool) (dropped []*knownFile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, known := range c.files {
		switch {
		case mapped[id]:
			known.used = now
		case now.Sub(known.used) > fileMemory:
			dropped = append(dropped, known)
			c.clear(id)
			delete(c.files, id)
		default:
			known.told = false
		}
	}
	return dropped
}

// ids returns the ids of some files as in NewFile.
func (c *codes) ids(of map[host.FileID]bool) map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := map[string]bool{}
	for id, known := range c.files {
		if of[id] {
			ids[known.id.StringNoQuotes()] = true
		}
	}
	return ids
}

// note adds the mappings of a draft whose files the kernel has identified. It returns the mappings
// of files of which onFile is to be told again, as no process had them mapped meanwhile.
func (c *codes) note(d *draft, files map[uint64]CodeFile) (again []remapped) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for i := range d.mappings {
		m := &d.mappings[i]
		prefixes, err := lpm.CalculatePrefixList(m.Vaddr, m.Vaddr+m.Length)
		if err != nil {
			continue
		}
		at, ok := d.spans[prefixes[0]]
		known := c.files[host.FileID(at.file)]
		if !ok || known == nil {
			continue
		}
		if known.used = now; !known.told {
			known.told = true
			again = append(again, remapped{known.id, known.buildID, m})
		}
		if f, identified := files[m.Vaddr]; identified {
			c.add(known, m, at, f)
		}
	}
	return again
}

// remapped is a file that is mapped again, and where.
type remapped struct {
	id      libpf.FileID
	buildID string
	mapping *process.RawMapping
}

// add adds a mapping of a file; c.mu is held.
func (c *codes) add(known *knownFile, m *process.RawMapping, at span, f CodeFile) {
	key := bpf.CodeKey{Inode: f.Address, Offset: m.FileOffset}
	if len(known.segments) >= maxSegments || slices.Contains(known.keys, key) {
		return
	}
	start := m.Vaddr - at.bias
	known.keys = append(known.keys, key)
	known.segments = append(known.segments, &File{
		ID: known.id.StringNoQuotes(), Path: known.path, BuildID: known.buildID, Start: start, Limit: start + m.Length, Offset: m.FileOffset,
	})
	if c.kernel != nil {
		_ = c.kernel.Put(key, bpf.Code{File: at.file, Start: start, Number: f.Inode, Changed: f.Changed, Device: f.Device})
	}
}

// drop removes the mappings of a file whose tables were removed. It keeps the file: its tables may
// be loaded again, and the profiler reports a file only once.
func (c *codes) drop(id host.FileID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear(id)
}

// clear is drop; c.mu is held.
func (c *codes) clear(id host.FileID) {
	known := c.files[id]
	if known == nil {
		return
	}
	for _, key := range known.keys {
		var code bpf.Code
		// Else it is a later version of the file.
		if c.kernel != nil && c.kernel.Lookup(key, &code) == nil && code.File == uint64(id) {
			_ = c.kernel.Delete(key)
		}
	}
	known.keys, known.segments = nil, nil
}

// file returns the segment of a file that contains an ELF address; nil if it is unknown.
func (c *codes) file(id host.FileID, address uint64) *File {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.files[id]
	if known == nil {
		return nil
	}
	for _, s := range known.segments {
		if s.Start <= address && address < s.Limit {
			return s
		}
	}
	return nil
}
