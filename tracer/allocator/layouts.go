// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/vramprof/vramprof/internal/elffile"
)

const (
	maxLayouts   = 64   // builds
	maxForm      = 4096 // bytes of a layout as JSON
	layoutFormat = 1
)

// Layouts keeps the layouts of builds. A process whose allocator proves none yet, since no segment
// is divided, is then read with that of another process. The zero value is empty; any goroutine may
// use it.
type Layouts struct {
	mu sync.Mutex
	of map[string]*Layout // by build id of the library
}

// New returns a reader of the allocator of a process, as the function New does. It takes the layout
// of the process's build from c, and adds it. A build id is only the file's claim: a layout that
// does not prove itself is replaced.
func (c *Layouts) New(m Memory) *Allocator {
	a := New(m, nil)
	a.shared = c
	return a
}

// Get returns the layout of a build, or nil.
func (c *Layouts) Get(build string) *Layout {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[build]
}

// Put keeps a layout. Beyond 64 builds it is dropped, as without a build.
func (c *Layouts) Put(build string, l *Layout) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[string]*Layout{}
	}
	if build != "" && (len(c.of) < maxLayouts || c.of[build] != nil) {
		c.of[build] = l
	}
}

// build returns the build id of the library, or "".
func (l *library) build() (id string) {
	l.file(func(_ uint64, f *elffile.File) { id = f.BuildID() })
	return id
}

// layoutForm is a Layout as JSON.
type layoutForm struct {
	Format    int   `json:"format"`
	Sets      []int `json:"sets"`
	Active    int   `json:"active"`
	Graphs    int   `json:"graphs,omitempty"`
	Stats     int   `json:"stats,omitempty"`
	Ptr       int   `json:"ptr"`
	Size      int   `json:"size"`
	Requested bool  `json:"requested"`
	Prev      int   `json:"prev"`
	Next      int   `json:"next"`
	Pool      int   `json:"pool"`
}

// MarshalJSON returns a stable form of a layout.
func (l *Layout) MarshalJSON() ([]byte, error) {
	return json.Marshal(layoutForm{layoutFormat, l.sets, l.active, l.graphs, l.stats, l.ptr, l.size, l.requested >= 0, l.prev, l.next, l.pool})
}

// UnmarshalJSON reads what MarshalJSON has written. It refuses offsets that no layout can have, and
// forms of another version.
func (l *Layout) UnmarshalJSON(data []byte) error {
	if len(data) > maxForm {
		return fmt.Errorf("read an allocator's layout: %d bytes, more than %d", len(data), maxForm)
	}
	var f layoutForm
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return fmt.Errorf("read an allocator's layout: %w", err)
	}
	read := Layout{sets: f.Sets, pair: len(f.Sets) == 4, active: f.Active, graphs: f.Graphs, stats: f.Stats, ptr: f.Ptr, size: f.Size, requested: -1, prev: f.Prev, next: f.Next, pool: f.Pool}
	if f.Requested {
		read.requested = f.Size + 8
	}
	if f.Format != layoutFormat || !read.valid() {
		return errors.New("read an allocator's layout: its format or offsets are not valid")
	}
	*l = read
	return nil
}

// valid reports whether calibrate can have found a layout.
func (l *Layout) valid() bool {
	if len(l.sets) != 2 && len(l.sets) != 4 || l.sets[0] < 64 {
		return false
	}
	end := 0 // of what is in front
	for _, o := range l.sets {
		if !within(o, end, objectSize-setSize) {
			return false
		}
		end = o + nodeSize
	}
	return within(l.active, end, min(end+activeRange, objectSize-tableSize)) &&
		(l.graphs == 0 || within(l.graphs, l.active+tableSize, objectSize-tableSize)) &&
		(l.stats == 0 || within(l.stats, 8, l.sets[0]-8-l.statsSize())) && l.validFields()
}

// validFields reports whether the fields of a Block are apart.
func (l *Layout) validFields() bool {
	fields := []int{l.ptr, l.size, l.prev, l.next, l.pool}
	if l.requested >= 0 {
		fields = append(fields, l.requested)
	}
	slices.Sort(fields)
	return len(slices.Compact(fields)) == len(fields) && !slices.ContainsFunc(fields, func(o int) bool { return !within(o, 0, blockSize-16) })
}

func within(o, first, last int) bool { return o%8 == 0 && o >= first && o <= last }
