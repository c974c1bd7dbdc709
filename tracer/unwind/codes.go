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
	segments []*File // mapped as code
}

// maxSegments limits the segments of one file; libraries have one or two.
const maxSegments = 16

// SetCodes sets the kernel half's map "codes", which may be nil. It must be called before Load.
func (u *Unwinder) SetCodes(kernel *ebpf.Map) { u.codes.kernel = kernel }

// noteFile adds a file whose tables were just loaded.
func (c *codes) noteFile(id libpf.FileID, path, buildID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files == nil || len(c.files) >= maxFiles {
		c.files = map[host.FileID]*knownFile{}
	}
	c.files[host.FileIDFromLibpf(id)] = &knownFile{id: id, path: path, buildID: buildID}
}

// note adds the mappings of a draft whose files the kernel has identified.
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

// drop removes the mappings of a file whose tables were removed. It keeps the file: its tables may
// be loaded again, and the profiler reports a file only once.
func (c *codes) drop(id host.FileID) {
	c.mu.Lock()
	defer c.mu.Unlock()
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
