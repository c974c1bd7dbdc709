// SPDX-License-Identifier: Apache-2.0

package export

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
)

// viewed is a snapshot as the viewer reads it.
type viewed struct {
	segments []viewedSegment
	traces   [][]map[string]any
	about    map[string]any
}

type viewedSegment struct {
	device, address, size, stream int64
	frames                        []string
	blocks                        []viewedBlock
}

type viewedBlock struct {
	address, size int64
	active        bool
	frames        []string
}

func names(frames any) (list []string) {
	for _, f := range *frames.(*[]any) {
		f := f.(map[string]any)
		_ = f["filename"].(string) + fmt.Sprint(f["line"].(int64))
		list = append(list, f["name"].(string))
	}
	return list
}

// view decodes a file and checks what the format requires of segments and blocks.
func view(t testing.TB, text []byte) *viewed {
	t.Helper()
	v, err := unpickle(text)
	if err != nil {
		t.Fatal(err)
	}
	top := v.(map[string]any)
	out := &viewed{about: top["vramprof"].(map[string]any)}
	for _, x := range *top["segments"].(*[]any) {
		s := x.(map[string]any)
		seg := viewedSegment{s["device"].(int64), s["address"].(int64), s["total_size"].(int64), s["stream"].(int64), names(s["frames"]), nil}
		at, active := seg.address, int64(0)
		for _, x := range *s["blocks"].(*[]any) {
			b := x.(map[string]any)
			block := viewedBlock{at, b["size"].(int64), b["state"] == "active_allocated", names(b["frames"])}
			if b["address"] != at || block.size <= 0 || !block.active && b["state"] != "inactive" {
				t.Fatalf("segment %x: block %v at %x", seg.address, b, at)
			}
			if block.active {
				active += block.size
				if b["requested_size"] != block.size || len(block.frames) == 0 {
					t.Fatalf("segment %x: block %v", seg.address, b)
				}
			}
			at += block.size
			seg.blocks = append(seg.blocks, block)
		}
		if at != seg.address+seg.size || seg.size <= 0 || s["allocated_size"] != active || at > inventEnd {
			t.Fatalf("blocks of segment %x end at %x of %x, %d bytes are active of %v", seg.address, at, seg.address+seg.size, active, s["allocated_size"])
		}
		out.segments = append(out.segments, seg)
	}
	for _, x := range *top["device_traces"].(*[]any) {
		var trace []map[string]any
		for _, e := range *x.(*[]any) {
			trace = append(trace, e.(map[string]any))
		}
		out.traces = append(out.traces, trace)
	}
	return out
}

// state undoes a device's trace entry by entry, as the viewer's state view does from the end.
type state struct {
	segments []viewedSegment
	blocks   map[int64]int64 // sizes by address
}

func (s *state) sort() {
	slices.SortFunc(s.segments, func(a, b viewedSegment) int { return cmp.Compare(a.address, b.address) })
}

// check reports whether all blocks lie in segments, and none overlap; the viewer fails otherwise.
func (s *state) check() error {
	s.sort()
	for i := 1; i < len(s.segments); i++ {
		if a, b := s.segments[i-1], s.segments[i]; a.address+a.size > b.address {
			return fmt.Errorf("segments at %x and %x overlap", a.address, b.address)
		}
	}
	for address := range s.blocks {
		i, _ := slices.BinarySearchFunc(s.segments, address, func(x viewedSegment, a int64) int { return cmp.Compare(x.address+x.size, a+1) })
		if i == len(s.segments) || s.segments[i].address > address {
			return fmt.Errorf("block %x lies in no segment", address)
		}
	}
	return nil
}

func (s *state) undo(e map[string]any) error {
	size := e["size"].(int64)
	if e["action"] == "oom" {
		_ = e["device_free"].(int64)
		return nil
	}
	address, stream := e["addr"].(int64), e["stream"].(int64)
	switch e["action"] {
	case "alloc":
		// Parts of a segment may turn out to be on different devices, if the calls did not name
		// them: then a block is cut off.
		if had := s.blocks[address]; had == 0 || had > size {
			return fmt.Errorf("alloc of %d bytes at %x, where %d are", size, address, s.blocks[address])
		}
		delete(s.blocks, address)
	case "free_requested":
		if _, ok := s.blocks[address]; !ok {
			return fmt.Errorf("no block at %x", address)
		}
	case "free_completed":
		if _, ok := s.blocks[address]; ok {
			return fmt.Errorf("block %x is freed twice", address)
		}
		s.blocks[address] = size
	case "segment_alloc":
		i := slices.IndexFunc(s.segments, func(x viewedSegment) bool { return x.address == address })
		if i < 0 || s.segments[i].size != size {
			return fmt.Errorf("no segment of %d bytes at %x", size, address)
		}
		s.segments = slices.Delete(s.segments, i, i+1)
	case "segment_free", "segment_unmap":
		s.segments = append(s.segments, viewedSegment{address: address, size: size, stream: stream})
	case "segment_map":
		return s.undoMap(address, size)
	default:
		return fmt.Errorf("action %v", e["action"])
	}
	return nil
}

// undoMap removes a range from a segment, since the viewer joins adjacent mappings on one stream.
func (s *state) undoMap(address, size int64) error {
	s.sort()
	for i := 1; i < len(s.segments); i++ {
		if a, b := &s.segments[i-1], s.segments[i]; a.address+a.size == b.address && a.stream == streamMapped && b.stream == streamMapped {
			a.size += b.size
			s.segments = slices.Delete(s.segments, i, i+1)
			i--
		}
	}
	for i, x := range s.segments {
		if x.address <= address && address+size <= x.address+x.size {
			s.segments = slices.Delete(s.segments, i, i+1)
			for _, rest := range [][2]int64{{x.address, address}, {address + size, x.address + x.size}} {
				if rest[0] < rest[1] {
					s.segments = append(s.segments, viewedSegment{address: rest[0], size: rest[1] - rest[0], stream: x.stream})
				}
			}
			return nil
		}
	}
	return fmt.Errorf("nothing is mapped at %x", address)
}

// replay undoes the whole traces and checks the state after each action, as if a user stepped
// through all of them.
func (v *viewed) replay() error {
	for device, trace := range v.traces {
		s := &state{blocks: map[int64]int64{}}
		for _, x := range v.segments {
			if x.device != int64(device) {
				continue
			}
			s.segments = append(s.segments, x)
			for _, b := range x.blocks {
				if b.active {
					s.blocks[b.address] = b.size
				}
			}
		}
		time := int64(1) << 62
		for i := len(trace) - 1; i >= 0; i-- {
			e := trace[i]
			next := i+1 == len(trace) || trace[i]["action"] != "free_requested" && trace[i]["action"] != "segment_alloc"
			if err := s.check(); err != nil && next {
				return fmt.Errorf("device %d after entry %d (%v at %x): %w", device, i, e["action"], e["addr"], err)
			}
			if err := s.undo(e); err != nil {
				return fmt.Errorf("device %d, entry %d: %w", device, i, err)
			}
			if len(names(e["frames"])) == 0 {
				return errors.New("an entry has no frames")
			}
			if at := e["time_us"].(int64); at > time {
				return fmt.Errorf("entry %d is of %d, the next of %d", i, at, time)
			} else {
				time = at
			}
		}
		if err := s.check(); err != nil {
			return fmt.Errorf("device %d at the beginning: %w", device, err)
		}
	}
	return nil
}
