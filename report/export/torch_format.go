// SPDX-License-Identifier: Apache-2.0

package export

import (
	"path"
	"slices"

	"github.com/vramprof/vramprof/internal/pickle"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// frameLists writes stacks. Equal ones are written once, and so are equal frames.
type frameLists struct {
	p      *pickle.Writer
	lists  map[siteKey]uint32 // memo numbers of lists of frames
	frames map[frameKey]uint32
}

type frameKey struct {
	file, name string
	line       int
}

func newFrameLists(p *pickle.Writer) frameLists {
	return frameLists{p: p, lists: make(map[siteKey]uint32), frames: make(map[frameKey]uint32)}
}

// list writes the stack of a key, leaf first, or refers to the same one that was written before.
func (t *frameLists) list(key siteKey, of func() []callstack.Frame) {
	if n, ok := t.lists[key]; ok {
		t.p.Ref(n)
		return
	}
	l, n := t.p.ListRef()
	t.lists[key] = n
	stack := of()
	for i := range stack {
		l.Item()
		t.frame(&stack[i])
	}
	l.End()
}

func (t *frameLists) frame(f *callstack.Frame) {
	key := frameKey{untrusted.Clean(f.File), frames.Name(f), max(f.Line, 0)}
	if key.file == "" && f.Mapping != nil {
		key.file = untrusted.Clean(path.Base(f.Mapping.Path))
	}
	if n, ok := t.frames[key]; ok {
		t.p.Ref(n)
		return
	}
	t.frames[key] = t.p.DictRef()
	t.p.StringItem("filename", key.file)
	t.p.UintItem("line", uint64(key.line))
	t.p.StringItem("name", key.name)
	t.p.EndDict()
}

// mark writes a list of one frame, which is a remark.
func (t *frameLists) mark(text string) {
	t.list(siteKey{api: "\x00" + text}, func() []callstack.Frame { return []callstack.Frame{{Function: text, Mark: true}} })
}

// path writes the steps of a holder's path, root first, as a stack below a remark, which may be "".
func (t *frameLists) path(holder string, steps []string, remark string) {
	t.list(siteKey{api: "\x00path\x00" + holder}, func() []callstack.Frame {
		var list []callstack.Frame
		for _, name := range slices.Backward(steps) {
			list = append(list, callstack.Frame{Function: name, Mark: true})
		}
		if remark != "" {
			list = append(list, callstack.Frame{Function: remark, Mark: true})
		}
		return list
	})
}

// segmentEntry has the fields of a segment except its frames and blocks.
type segmentEntry struct {
	device, address, total       uint64
	allocated, active, requested uint64
	stream                       uint64
	pool                         [2]uint64
	small, expandable            bool
}

// write writes a segment. The functions write its frames, and its blocks as a list; blocks may set
// the sizes.
func (s *segmentEntry) write(p *pickle.Writer, frames, blocks func()) {
	p.Dict()
	p.UintItem("device", s.device)
	p.UintItem("address", s.address)
	p.String("frames")
	frames()
	p.String("blocks")
	blocks()
	p.UintItem("total_size", s.total)
	p.UintItem("allocated_size", s.allocated)
	p.UintItem("active_size", s.active)
	p.UintItem("requested_size", s.requested)
	p.UintItem("stream", s.stream)
	sort := "large"
	if s.small {
		sort = "small"
	}
	p.StringItem("segment_type", sort)
	p.String("segment_pool_id")
	p.Pair(s.pool[0], s.pool[1])
	p.String("is_expandable")
	p.Bool(s.expandable)
	p.EndDict()
}

// States of a block.
const (
	stateActive   = "active_allocated"
	stateInactive = "inactive"
)

// blockEntry has the fields of a block except its frames.
type blockEntry struct {
	address, size, requested uint64
	state                    string
	holder                   string // for programs; viewers ignore it
}

func (b *blockEntry) write(p *pickle.Writer, frames func()) {
	p.Dict()
	p.UintItem("address", b.address)
	p.UintItem("size", b.size)
	p.StringItem("state", b.state)
	p.UintItem("requested_size", b.requested)
	p.String("frames")
	frames()
	if b.holder != "" {
		p.StringItem("holder", b.holder)
	}
	p.EndDict()
}
