// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/lpm"

	"github.com/vramprof/vramprof/bpf"
)

// codes are the mappings of code that the tables of any process know. By them the kernel half walks the stacks of processes that nobody has
// looked at yet, and Decode finds the files of such stacks.
type codes struct {
	kernel *ebpf.Map // nil where the kernel half does not look into processes

	mu    sync.Mutex // guards what follows, never for long
	files map[host.FileID]*knownFile
}

// knownFile is a file with unwind tables.
type knownFile struct {
	id       libpf.FileID
	path     string
	buildID  string
	keys     []bpf.CodeKey
	segments []*File // that were mapped as code
}

// maxSegments of one file are remembered: libraries have one or two.
const maxSegments = 16

// SetCodes hands over the kernel half's map of them. It may be nil. It has to be called before Load.
func (u *Unwinder) SetCodes(kernel *ebpf.Map) { u.codes.kernel = kernel }

// noteFile remembers a file that has just got its tables.
func (c *codes) noteFile(id libpf.FileID, path, buildID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files == nil || len(c.files) >= maxFiles {
		c.files = map[host.FileID]*knownFile{}
	}
	c.files[host.FileIDFromLibpf(id)] = &knownFile{id: id, path: path, buildID: buildID}
}

// note takes over the mappings of a draft, of files that the kernel has identified.
func (c *codes) note(d *draft, files map[uint64]CodeFile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range d.mappings {
		m := &d.mappings[i]
		f, identified := files[m.Vaddr]
		prefixes, err := lpm.CalculatePrefixList(m.Vaddr, m.Vaddr+m.Length)
		if err != nil || !identified {
			continue
		}
		at, ok := d.spans[prefixes[0]]
		known := c.files[host.FileID(at.file)]
		if !ok || known == nil || len(known.segments) >= maxSegments {
			continue
		}
		key := bpf.CodeKey{Inode: f.Address, Offset: m.FileOffset}
		if slices.Contains(known.keys, key) {
			continue
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
}

// drop forgets where a file was mapped whose tables are gone. They may come again, and the profiler does not report a file twice.
func (c *codes) drop(id host.FileID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.files[id]
	if known == nil {
		return
	}
	for _, key := range known.keys {
		var code bpf.Code
		if c.kernel != nil && c.kernel.Lookup(key, &code) == nil && code.File == uint64(id) { // else of a later version of the file
			_ = c.kernel.Delete(key)
		}
	}
	known.keys, known.segments = nil, nil
}

// file returns the file that an address of it lies in; nil if it is not known.
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
