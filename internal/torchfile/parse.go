// SPDX-License-Identifier: Apache-2.0

// Package torchfile reads the files that torch.cuda.memory._dump_snapshot writes, as captures. The
// state at the dump and the events of the traces before it become inputs of a ledger, so that all
// views show them.
package torchfile

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/vramprof/vramprof/internal/pickle"
)

// Limits on files that may be forged. A history of PyTorch has 100,000 events by default in its
// documentation's examples; its values take some 500 bytes each.
const (
	maxMemory   = 4 << 30 // bytes of values
	maxItems    = 4 << 20 // segments, blocks and events
	maxDevice   = 255
	maxWarnings = 16      // of vramprof, when it wrote the file
	maxSize     = 1 << 48 // bytes of a segment or block, as in the ledger
)

var (
	errNoSnapshot = errors.New("it is a pickle of Python, but no memory snapshot of PyTorch: it has no list \"segments\"")
	errTooLarge   = errors.New("it is larger than the limits on files of others")
)

// snapshot is the content of a file. Lists of frames stay as they are in the pickle: many share
// one.
type snapshot struct {
	segments [][]segment // by device
	traces   [][]entry   // by device, oldest first
	settings *string     // PYTORCH_CUDA_ALLOC_CONF; nil: unknown, before PyTorch 2.1
	about    about
}

type segment struct {
	start, end uint64
	expandable bool
	pool       [2]uint64 // zeros: the default pool
	frames     *pickle.List
	blocks     []block
}

// block is an allocated block; free ones are what a segment has left.
type block struct {
	address, size uint64
	frames        *pickle.List
}

// about is the process, which only snapshots of vramprof name.
type about struct {
	host, comm string
	pid        uint32
	exported   bool // from a session: it has memory that is not PyTorch's
	warnings   []string
}

type action uint8

const (
	actionOther action = iota
	alloc
	freeRequested
	segmentAlloc
	segmentFree
	segmentMap
	segmentUnmap
	outOfMemory
	freeCompleted
)

var actions = map[string]action{
	"alloc": alloc, "free_requested": freeRequested, "segment_alloc": segmentAlloc, "segment_free": segmentFree,
	"segment_map": segmentMap, "segment_unmap": segmentUnmap, "oom": outOfMemory, "free_completed": freeCompleted,
}

// entry is an event of a trace. The sizes of blocks are those that the program requested.
type entry struct {
	action        action
	address, size uint64
	time          uint64 // microseconds since 1970; 0: unknown
	stream        uint64
	frames        *pickle.List
}

// parser maps values to a snapshot. What is malformed is left out and counted.
type parser struct {
	snapshot
	unlimited bool
	left      int // items that may still come
	bad       int // that were malformed
}

// parse reads a snapshot of at most size bytes. An unlimited one is trusted.
func parse(from io.Reader, size int64, unlimited bool) (*parser, error) {
	o := pickle.Options{Size: size, MaxMemory: maxMemory}
	p := &parser{left: maxItems, unlimited: unlimited}
	if unlimited {
		o.MaxMemory, p.left = 0, math.MaxInt
	}
	v, err := pickle.Read(from, o)
	if err != nil {
		if errors.Is(err, pickle.ErrMemory) {
			err = fmt.Errorf("%w (%w)", errTooLarge, err)
		}
		return nil, err
	}
	top, _ := v.(pickle.Dict)
	segments, is := top["segments"].(*pickle.List)
	if list, old := v.(*pickle.List); old && len(list.Items) > 0 { // memory_snapshot()
		segments, is = list, true
	}
	if !is {
		return nil, errNoSnapshot
	}
	for _, x := range segments.Items {
		p.segment(dict(x))
	}
	if len(segments.Items) > 0 && len(p.segments) == 0 {
		return nil, errNoSnapshot
	}
	for device, x := range items(top["device_traces"]) {
		if device > maxDevice {
			break
		}
		p.traces = append(p.traces, p.trace(items(x)))
	}
	if conf, is := dict(top["allocator_settings"])["PYTORCH_CUDA_ALLOC_CONF"].(string); is && len(conf) <= maxText {
		p.settings = &conf
	}
	p.readAbout(dict(top["vramprof"]))
	if p.left < 0 {
		return nil, errTooLarge
	}
	return p, nil
}

func dict(v any) pickle.Dict {
	d, _ := v.(pickle.Dict)
	return d
}

func items(v any) []any {
	if l, is := v.(*pickle.List); is {
		return l.Items
	}
	return nil
}

func list(v any) *pickle.List {
	l, _ := v.(*pickle.List)
	return l
}

// number returns a number from 0 to 2^63-1.
func number(v any) (uint64, bool) {
	n, is := v.(int64)
	return uint64(n), is && n >= 0
}

func str(v any) string {
	s, _ := v.(string)
	return s
}

// takes counts an item, and reports whether there is room for it.
func (p *parser) takes() bool {
	p.left--
	return p.left >= 0
}

// ranged returns a range of addresses of a dictionary.
func ranged(d pickle.Dict, address, size string) (start, end uint64, ok bool) {
	start, ok = number(d[address])
	n, sized := number(d[size])
	return start, start + n, ok && sized && n > 0 && n <= maxSize && start > 0 && start <= math.MaxInt64-maxSize
}

func (p *parser) segment(d pickle.Dict) {
	if !p.takes() {
		return
	}
	start, end, ok := ranged(d, "address", "total_size")
	device, known := number(d["device"])
	if !ok || !known || device > maxDevice {
		p.bad++
		return
	}
	for uint64(len(p.segments)) <= device {
		p.segments = append(p.segments, nil)
	}
	g := segment{start: start, end: end, frames: list(d["frames"])}
	g.expandable, _ = d["is_expandable"].(bool)
	for i, x := range items(d["segment_pool_id"]) {
		if i < len(g.pool) {
			g.pool[i], _ = number(x)
		}
	}
	at := start
	for _, x := range items(d["blocks"]) {
		if !p.takes() {
			return
		}
		b := dict(x)
		size, sized := number(b["size"])
		if address, has := number(b["address"]); has { // since PyTorch 2.1
			at = address
		}
		if !sized || size == 0 || at < start || at >= end || size > end-at {
			p.bad++
			continue
		}
		if str(b["state"]) == "active_allocated" {
			g.blocks = append(g.blocks, block{at, size, framesOf(b)})
		}
		at += size
	}
	p.segments[device] = append(p.segments[device], g)
}

// framesOf returns the frames of a block. Before PyTorch 2.1 they are in its history.
func framesOf(b pickle.Dict) *pickle.List {
	if l := list(b["frames"]); l != nil {
		return l
	}
	if history := items(b["history"]); len(history) > 0 {
		return list(dict(history[0])["frames"])
	}
	return nil
}

func (p *parser) trace(entries []any) (trace []entry) {
	for _, x := range entries {
		if !p.takes() {
			return nil
		}
		d := dict(x)
		e := entry{action: actions[str(d["action"])], frames: list(d["frames"])}
		e.time, _ = number(d["time_us"])
		e.size, _ = number(d["size"])
		e.stream, _ = number(d["stream"])
		if e.action == actionOther {
			continue
		}
		if e.action != outOfMemory {
			start, _, ok := ranged(d, "addr", "size")
			if !ok {
				p.bad++
				continue
			}
			e.address = start
		}
		trace = append(trace, e)
	}
	return trace
}

func (p *parser) readAbout(d pickle.Dict) {
	pid, _ := number(d["pid"])
	_, exported := d["trace_events_dropped"]
	p.about = about{host: str(d["host"]), comm: str(d["comm"]), exported: exported}
	for _, x := range items(d["warnings"]) {
		if s := bounded(str(x)); s != "" && len(p.about.warnings) < maxWarnings {
			p.about.warnings = append(p.about.warnings, s)
		}
	}
	if pid <= math.MaxInt32 {
		p.about.pid = uint32(pid)
	}
}

// firstTime returns the earliest time of the traces, in microseconds since 1970, and how many
// entries they have. 0 is the time of an entry without one.
func (p *snapshot) firstTime() (first uint64, entries int) {
	first = math.MaxUint64
	for _, trace := range p.traces {
		entries += len(trace)
		for i := range trace {
			first = min(first, trace[i].time)
		}
	}
	return first, entries
}
