// SPDX-License-Identifier: Apache-2.0

package export

import (
	"github.com/vramprof/vramprof/internal/pickle"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// trace writes the entries of one device. Driver memory that is not PyTorch's is a segment and its
// only block.
func (t *torch) trace(device int32) {
	l := t.p.List()
	if t.entries[device] == 0 {
		return
	}
	listed := t.listed
	for len(listed) > 0 && listed[0].after < 0 {
		listed = listed[1:]
	}
	for i, e := range t.s.trace.all() {
		if t.device(e.id, e.device) == device {
			t.actions(&l, e)
		}
		for ; len(listed) > 0 && listed[0].after == i; listed = listed[1:] {
			if b := &listed[0]; b.device == device {
				l.Item()
				t.entry(&entry{time: e.time, address: b.start, size: b.size, action: tensorAlloc}, "alloc")
			}
		}
	}
	l.End()
}

// actions writes the actions of an entry.
func (t *torch) actions(l *pickle.ListWriter, e *entry) {
	put := func(actions ...string) {
		for _, a := range actions {
			l.Item()
			t.entry(e, a)
		}
	}
	block := !e.older && !t.hosts(whole, e.stack, e.api)
	if block && (e.action == segmentFree || e.action == segmentUnmap) {
		put("free_requested", "free_completed")
	}
	switch e.action {
	case tensorAlloc:
		put("alloc")
	case tensorFree:
		put("free_requested", "free_completed") // next to each other, so that the viewer joins them
	case segmentAlloc:
		put("segment_alloc")
	case segmentFree:
		put("segment_free")
	case segmentMap:
		put("segment_map")
	case segmentUnmap:
		put("segment_unmap")
	case outOfMemory:
		put("oom")
	}
	if block && (e.action == segmentAlloc || e.action == segmentMap) {
		put("alloc")
	}
}

func (t *torch) entry(e *entry, action string) {
	p := t.p
	p.Dict()
	p.StringItem("action", action)
	stream := uint64(streamWhole)
	if e.action == segmentMap || e.action == segmentUnmap {
		stream = streamMapped
	}
	if e.action == outOfMemory {
		p.UintItem("device_free", e.address)
	} else {
		p.UintItem("addr", e.address)
	}
	p.UintItem("size", e.size)
	p.UintItem("stream", stream)
	p.UintItem("time_us", t.wall(e.time))
	p.String("frames")
	switch {
	case e.older:
		t.mark(markSegment)
	case e.id == 0 && e.action == tensorAlloc:
		t.mark(markNotSampled)
	default:
		t.stack(e.stack, e.api)
	}
	p.EndDict()
}

// wall returns a time in microseconds since 1970.
func (t *torch) wall(time uint64) uint64 {
	ns := t.snapshot.Wall.UnixNano() - int64(t.snapshot.End-time)
	return uint64(max(ns, 0)) / 1000
}

// stack writes the frames of a stack, leaf first, or refers to the same one that was written
// before.
func (t *torch) stack(id uint64, api string) {
	key := siteKey{stack: id}
	if id == 0 {
		key.api = api
	}
	t.list(key, func() []callstack.Frame { return frames.Visible(t.st, id, untrusted.Clean(api)) })
}
