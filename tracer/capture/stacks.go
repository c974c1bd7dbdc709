// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"slices"
	"sort"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/capture/internal/wire"
)

// Bounds of the stored stacks of a file.
const (
	maxStackBytes = 512 << 20 // of their frames, as messages
	maxStackDepth = 1 << 10   // outer frames are dropped
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

// stackTables holds all stacks of a file, as indexes.
type stackTables struct {
	texts    table[string]
	mappings table[*callstack.Mapping]
	lines    table[line]
	stacks   map[uint64][]uint32 // indexes into lines
}

// lost replaces a frame whose line was in a damaged part of the file.
var lost = callstack.Frame{Function: "[damaged: the name is lost]", Mark: true}

// Stack returns the frames of a stack, leaf first. It returns none for an unknown id.
func (r *Reader) Stack(id uint64) []callstack.Frame {
	r.loadStacks.Do(r.readStacks)
	r.mu.Lock()
	defer r.mu.Unlock()
	if frames, ok := r.frameOf[id]; ok {
		return frames
	}
	list, ok := r.stacks.stacks[id]
	if !ok {
		return nil
	}
	frames := make([]callstack.Frame, len(list))
	for i, index := range list {
		frames[i] = r.stacks.frame(index)
	}
	if r.cached += len(frames); r.cached > maxCached { // not all at once: a line is an index here, while a frame takes a hundred bytes
		clear(r.frameOf)
		r.cached = len(frames)
	}
	r.frameOf[id] = frames
	return frames
}

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

// text returns "" for index 0 and for lost texts.
func (t *stackTables) text(index uint32) string {
	s, _ := t.texts.at(index)
	return s
}

// readStacks reads all frames with stacks.
func (r *Reader) readStacks() {
	r.stacks.stacks = map[uint64][]uint32{}
	bytes := 0
	var paths []mappingTexts
	for i := range r.frames {
		f := &r.frames[i]
		if f.kind != stacksFrame {
			continue
		}
		var m wire.Stacks
		bytes += int(f.size)
		if bytes > maxStackBytes || r.load(f, &m, &buffers{}) != nil || !r.stacks.add(&m, &paths) {
			r.miss(missing{first: f.first, last: f.last, damaged: true, stacks: true})
		}
	}
	r.stacks.texts.sort()
	r.stacks.mappings.sort()
	r.stacks.lines.sort()
	for _, p := range paths { // after all texts have been read
		p.mapping.Path, p.mapping.BuildID = r.stacks.text(p.path), r.stacks.text(p.build)
	}
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
