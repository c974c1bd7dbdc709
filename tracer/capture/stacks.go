// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"slices"
	"sort"
	"sync"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/capture/internal/wire"
)

// Bounds of the stored stacks of a file.
const (
	maxStackBytes = 512 << 20 // of their frames, as messages
	maxStackDepth = 1 << 10   // outer frames are dropped
	maxCached     = 1 << 19   // frames of stacks in a stackCache, 70 MB
)

// table holds the entries that frames have added, by the index of their first entry: some may be
// lost.
type table[T any] struct{ parts []part[T] }

type part[T any] struct {
	first uint32
	list  []T
}

func (t *table[T]) add(first uint32, list []T) {
	if len(list) > 0 {
		t.parts = append(t.parts, part[T]{first, list})
	}
}

// sort must be called before at.
func (t *table[T]) sort() {
	slices.SortStableFunc(t.parts, func(a, b part[T]) int { return cmp.Compare(a.first, b.first) })
}

func (t *table[T]) at(index uint32) (value T, ok bool) {
	i := sort.Search(len(t.parts), func(i int) bool { return t.parts[i].first > index }) - 1
	if i < 0 || uint64(index-t.parts[i].first) >= uint64(len(t.parts[i].list)) {
		return value, false
	}
	return t.parts[i].list[index-t.parts[i].first], true
}

// stackCache has all stacks of a file, and the frames of those that were asked for.
type stackCache struct {
	load   sync.Once // fills tables, which is read-only afterwards
	tables stackTables

	mu       sync.Mutex // guards the fields below
	frames   map[uint64][]callstack.Frame
	cached   int             // frames in frames
	segments map[uint64]bool // by stack: whether PyTorch's allocator took its memory
}

func newStackCache() stackCache {
	return stackCache{tables: stackTables{stacks: map[uint64][]uint32{}}, frames: map[uint64][]callstack.Frame{}, segments: map[uint64]bool{}}
}

// of returns the frames of a stack, leaf first; none for an unknown id.
func (c *stackCache) of(id uint64) []callstack.Frame {
	c.mu.Lock()
	defer c.mu.Unlock()
	if frames, ok := c.frames[id]; ok {
		return frames
	}
	list, ok := c.tables.stacks[id]
	if !ok {
		return nil
	}
	frames := make([]callstack.Frame, len(list))
	for i, index := range list {
		frames[i] = c.tables.frame(index)
	}
	if c.cached += len(frames); c.cached > maxCached { // not all at once: a line is an index here, while a frame takes a hundred bytes
		clear(c.frames)
		c.cached = len(frames)
	}
	c.frames[id] = frames
	return frames
}

// isSegment returns what noteSegment noted of a stack, and false for known if it noted nothing.
func (c *stackCache) isSegment(stack uint64) (is, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	is, known = c.segments[stack]
	return is, known
}

// noteSegment notes whether PyTorch's allocator took the memory that a stack allocated.
func (c *stackCache) noteSegment(stack uint64, is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.segments[stack] = is
}

// stackTables holds all stacks of a file, as indexes.
type stackTables struct {
	texts    table[string]
	mappings table[*callstack.Mapping]
	lines    table[line]
	stacks   map[uint64][]uint32 // indexes into lines
}

// lost replaces a frame whose line was in a damaged part of the file.
var lost = callstack.Frame{Function: "[damaged: the name is lost]", Mark: true}

func (t *stackTables) frame(index uint32) callstack.Frame {
	k, ok := t.lines.at(index)
	if !ok {
		return lost
	}
	f := callstack.Frame{
		Line: int(k.number), StartLine: int(k.start), Address: k.address,
		Python: k.flags&flagPython != 0, Inlined: k.flags&flagInlined != 0, Mark: k.flags&flagMark != 0,
	}
	f.Function = t.text(k.function)
	f.SystemName, f.File = t.text(k.system), t.text(k.file)
	if f.Function == "" {
		f.Function = lost.Function
	}
	if k.mapping != 0 {
		f.Mapping, _ = t.mappings.at(k.mapping - 1)
	}
	return f
}

// sort must be called after all frames of the file were added. It sets the texts of mappings.
func (t *stackTables) sort(paths []mappingTexts) {
	t.texts.sort()
	t.mappings.sort()
	t.lines.sort()
	for _, p := range paths {
		p.mapping.Path, p.mapping.BuildID = t.text(p.path), t.text(p.build)
	}
}

// text returns "" for index 0 and for lost texts.
func (t *stackTables) text(index uint32) string {
	s, _ := t.texts.at(index)
	return s
}

// mappingTexts holds the text indexes of a mapping.
type mappingTexts struct {
	mapping     *callstack.Mapping
	path, build uint32
}

// add reads one frame. It returns false if its columns do not match.
func (t *stackTables) add(m *wire.Stacks, paths *[]mappingTexts) bool {
	n := len(m.MappingPath)
	if len(m.MappingBuild) != n || len(m.MappingStart) != n || len(m.MappingLimit) != n || len(m.MappingOffset) != n {
		return false
	}
	lines, ok := linesOf(m)
	if !ok || len(m.Depth) != len(m.Id) {
		return false
	}
	texts := make([]string, len(m.Text))
	for i, text := range m.Text {
		texts[i] = string(text[:min(len(text), maxText)])
	}
	mappings := make([]*callstack.Mapping, n)
	for i := range mappings {
		mappings[i] = &callstack.Mapping{Start: m.MappingStart[i], Limit: m.MappingLimit[i], Offset: m.MappingOffset[i]}
		*paths = append(*paths, mappingTexts{mappings[i], m.MappingPath[i], m.MappingBuild[i]})
	}
	t.texts.add(m.FirstText, texts)
	t.mappings.add(m.FirstMapping, mappings)
	t.lines.add(m.FirstLine, lines)
	rest := m.Line
	for i, id := range m.Id {
		depth := m.Depth[i]
		if uint64(depth) > uint64(len(rest)) {
			return false
		}
		kept := min(depth, maxStackDepth)
		t.stacks[id] = rest[:kept:kept]
		rest = rest[depth:]
	}
	return true
}

func linesOf(m *wire.Stacks) ([]line, bool) {
	n := len(m.Function)
	for _, length := range [...]int{len(m.SystemName), len(m.File), len(m.Number), len(m.Start), len(m.Address), len(m.Mapping), len(m.Flags)} {
		if length != n {
			return nil, false
		}
	}
	lines := make([]line, n)
	address := uint64(0)
	for i := range lines {
		address += uint64(m.Address[i])
		lines[i] = line{
			function: m.Function[i], system: m.SystemName[i], file: m.File[i], number: m.Number[i], start: m.Start[i],
			address: address, mapping: m.Mapping[i], flags: m.Flags[i],
		}
	}
	return lines, true
}

// line is a frame by indexes.
type line struct {
	function, system, file uint32
	number, start          int32
	address                uint64
	mapping, flags         uint32
}

const (
	flagPython = 1 << iota
	flagInlined
	flagMark
)

// stackCoder holds the tables shared by all frames with stacks.
type stackCoder struct {
	texts    map[string]uint32
	mappings map[callstack.Mapping]uint32
	lines    map[line]uint32
	m        *wire.Stacks // the frame being built
	size     int          // approximate size of m in bytes
	address  uint64
}

func newStackCoder() stackCoder {
	return stackCoder{texts: map[string]uint32{"": 0}, mappings: map[callstack.Mapping]uint32{}, lines: map[line]uint32{}}
}

func (c *stackCoder) begin() {
	c.m = &wire.Stacks{FirstText: uint32(len(c.texts)), FirstMapping: uint32(len(c.mappings)), FirstLine: uint32(len(c.lines))}
	c.size, c.address = 0, 0
}

func (c *stackCoder) add(id uint64, frames []callstack.Frame) {
	for i := range frames {
		c.m.Line = append(c.m.Line, c.line(&frames[i]))
	}
	c.m.Id, c.m.Depth = append(c.m.Id, id), append(c.m.Depth, uint32(len(frames)))
	c.size += 12 + 4*len(frames)
}

func (c *stackCoder) line(f *callstack.Frame) uint32 {
	k := line{
		function: c.text(f.Function), system: c.text(f.SystemName), file: c.text(f.File),
		number: int32(f.Line), start: int32(f.StartLine), address: f.Address, mapping: c.mapping(f.Mapping),
	}
	if f.Python {
		k.flags |= flagPython
	}
	if f.Inlined {
		k.flags |= flagInlined
	}
	if f.Mark {
		k.flags |= flagMark
	}
	if n, ok := c.lines[k]; ok {
		return n
	}
	n := uint32(len(c.lines))
	c.lines[k] = n
	m := c.m
	m.Function, m.SystemName, m.File = append(m.Function, k.function), append(m.SystemName, k.system), append(m.File, k.file)
	m.Number, m.Start, m.Mapping, m.Flags = append(m.Number, k.number), append(m.Start, k.start), append(m.Mapping, k.mapping), append(m.Flags, k.flags)
	m.Address = append(m.Address, int64(k.address-c.address))
	c.address = k.address
	c.size += 24
	return n
}

func (c *stackCoder) text(s string) uint32 {
	n, ok := c.texts[s]
	if !ok {
		n = uint32(len(c.texts))
		c.texts[s] = n
		c.m.Text = append(c.m.Text, []byte(s))
		c.size += len(s) + 4
	}
	return n
}

// mapping returns an index + 1.
func (c *stackCoder) mapping(m *callstack.Mapping) uint32 {
	if m == nil {
		return 0
	}
	n, ok := c.mappings[*m]
	if !ok {
		n = uint32(len(c.mappings))
		c.mappings[*m] = n
		c.m.MappingPath, c.m.MappingBuild = append(c.m.MappingPath, c.text(m.Path)), append(c.m.MappingBuild, c.text(m.BuildID))
		c.m.MappingStart, c.m.MappingLimit = append(c.m.MappingStart, m.Start), append(c.m.MappingLimit, m.Limit)
		c.m.MappingOffset = append(c.m.MappingOffset, m.Offset)
		c.size += 32
	}
	return n + 1
}
