// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/capture/internal/wire"
)

const (
	maxFrames = 4 << 20
	maxParts  = 400_000 // messages and strings per frame
)

// indexed is a frame with the offset of its payload.
type indexed struct {
	frame
	offset int64
}

// Reader reads a capture. It is safe for concurrent use.
type Reader struct {
	file        io.ReaderAt
	closer      io.Closer
	host        string
	tool        string
	boot        string
	session     string
	part        uint32
	opened      uint64 // when the opening was complete; 0: never, or there is none
	time        uint64 // when the file was created
	wall        time.Time
	begin       uint64
	last        uint64
	frames      []indexed
	checkpoints checkpoints
	end         *wire.End // nil: the capture is not complete
	endings     []string  // the warnings of the last snapshot
	zstd        *zstd.Decoder

	options ReadOptions
	size    int64

	missing gaps
	stacks  stackCache

	mu      sync.Mutex // guards stopped
	stopped error      // the limit that was reached
}

// ReadOptions control how a capture is read.
type ReadOptions struct {
	Unlimited bool // no limits on memory and time: only for captures that cannot be forged

	// Progress reports how many bytes of the file have been processed: while it is opened, and by
	// each Player. It is called with done equal to size at the end. It may be nil.
	Progress func(done, size int64)
}

// Open opens a capture, which may still be written to. If the file is not a capture, the error is
// ErrNotCapture.
func Open(path string) (*Reader, error) { return OpenWith(path, ReadOptions{}) }

// OpenWith is Open with options.
func OpenWith(path string, o ReadOptions) (*Reader, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO must not block
	if err != nil {
		return nil, err
	}
	r, err := openFile(f, o)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	r.closer = f
	return r, nil
}

func openFile(f *os.File, o ReadOptions) (*Reader, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	return NewReaderWith(f, info.Size(), o)
}

// NewReader reads a capture of size bytes. The caller keeps ownership of file.
func NewReader(file io.ReaderAt, size int64) (*Reader, error) {
	return NewReaderWith(file, size, ReadOptions{})
}

// NewReaderWith is NewReader with options.
func NewReaderWith(file io.ReaderAt, size int64, o ReadOptions) (*Reader, error) {
	b := make([]byte, min(size, int64(fixedHead+maxHead+4)))
	if _, err := file.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	h, at, err := parseHead(b)
	if err != nil {
		return nil, err
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxMemory(maxPayload),
		zstd.WithDecoderMaxWindow(maxPayload))
	if err != nil {
		return nil, err
	}
	r := &Reader{
		file: file, host: clean(h.GetHost()), tool: clean(h.GetTool()), boot: clean(h.GetBoot()), session: clean(h.GetSession()), part: h.GetPart(),
		time: h.GetTime(), last: h.GetTime(), wall: time.Unix(0, h.GetWall()).UTC(),
		zstd: decoder, options: o, size: size, stacks: newStackCache(),
	}
	s := scan{r: r, size: size, offset: int64(at), last: h.GetTime()}
	if err := s.all(); err != nil {
		decoder.Close()
		return nil, err
	}
	if o.Progress != nil {
		o.Progress(size, size)
	}
	r.begin = r.findBegin()
	r.readEnd()
	return r, nil
}

// Close frees all resources and closes the file if Open opened it.
func (r *Reader) Close() error {
	r.zstd.Close()
	if r.closer == nil {
		return nil
	}
	return r.closer.Close()
}

// Stop makes all playing that goes on, and all further playing, fail with an error. It may be
// called from any goroutine.
func (r *Reader) Stop(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = cmp.Or(r.stopped, err)
}

// reached returns the error of the limit that was reached, or nil.
func (r *Reader) reached() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopped
}

// findBegin returns the time at which the ledger began, before all events.
func (r *Reader) findBegin() uint64 {
	begin := r.time
	var m wire.Inputs
	for i := range r.frames {
		f := &r.frames[i]
		if f.kind != inputsFrame {
			continue
		}
		if r.load(f, &m, &buffers{}) == nil {
			for _, in := range m.Input {
				if what, ok := in.What.(*wire.Input_Begin); ok {
					begin = what.Begin
				}
			}
		}
		if f.events > 0 {
			break
		}
	}
	return begin
}

func (r *Reader) readEnd() {
	for i := range r.frames {
		if f := &r.frames[i]; f.kind == endFrame {
			var m wire.End
			if r.load(f, &m, &buffers{}) == nil {
				r.end, r.endings = &m, nil
				for _, text := range m.Warning[:min(len(m.Warning), maxEndings)] {
					r.endings = append(r.endings, clean(text))
				}
				m.Warning = nil
			}
		}
	}
}

// Host returns the name of the traced machine.
func (r *Reader) Host() string { return r.host }

// Tool returns the version that wrote the capture.
func (r *Reader) Tool() string { return r.tool }

// Boot returns the id of the boot that the times count from, "" if unknown.
func (r *Reader) Boot() string { return r.boot }

// Session returns the session of a capture of an archive, "" for others, and the number of the
// capture in its session, from 0.
func (r *Reader) Session() (id string, part uint32) { return r.session, r.part }

// Opened returns from when on the capture has all of its session: for the first capture of a
// session its begin, for a further one the end of its opening, or 0 if the writer did not get that
// far.
func (r *Reader) Opened() uint64 {
	if r.part == 0 {
		return r.begin
	}
	return r.opened
}

// Begin returns when the ledger began, in ns of CLOCK_MONOTONIC on the traced machine.
func (r *Reader) Begin() uint64 { return r.begin }

// End returns the time of the last snapshot or, if there is none, of the last input.
func (r *Reader) End() uint64 {
	if r.end != nil {
		return max(r.end.Time, r.begin)
	}
	return max(r.last, r.begin)
}

// Ended reports whether the capture is complete. Otherwise it is still being written, or vramprof
// was killed.
func (r *Reader) Ended() bool { return r.end != nil }

// Events returns the number of events.
func (r *Reader) Events() (n uint64) {
	for i := range r.frames {
		if r.frames[i].kind == inputsFrame {
			n += uint64(r.frames[i].events)
		}
	}
	return n
}

// Wall returns the time of day at a moment.
func (r *Reader) Wall(at uint64) time.Time {
	if r.end != nil && at == r.end.Time {
		return time.Unix(0, r.end.Wall).UTC()
	}
	return r.wall.Add(time.Duration(at - r.time))
}

type buffers struct{ file, payload []byte }

var errFrame = errors.New("a frame cannot be read")

// load reads the message of a frame into m and reuses the slices of m.
func (r *Reader) load(f *indexed, m proto.Message, b *buffers) error {
	b.file = slices.Grow(b.file[:0], int(f.length))[:f.length]
	if _, err := r.file.ReadAt(b.file, f.offset); err != nil && !(errors.Is(err, io.EOF) && f.length == 0) {
		if errors.Is(err, io.EOF) {
			return errFrame // the file was truncated in the meantime
		}
		return err
	}
	b.payload = slices.Grow(b.payload[:0], int(f.size))[:0:f.size]
	if f.size > 0 {
		var err error
		if b.payload, err = r.zstd.DecodeAll(b.file, b.payload); err != nil || len(b.payload) != int(f.size) {
			return errFrame
		}
	}
	if inputs, ok := m.(*wire.Inputs); ok {
		truncate(inputs)
	} else {
		proto.Reset(m)
	}
	if !wire.Bounded(b.payload, descriptor(m), maxParts) || (proto.UnmarshalOptions{Merge: true, DiscardUnknown: true}).Unmarshal(b.payload, m) != nil {
		return errFrame
	}
	return nil
}

// Stack returns the frames of a stack, leaf first. It returns none for an unknown id.
func (r *Reader) Stack(id uint64) []callstack.Frame {
	r.stacks.load.Do(r.readStacks)
	return r.stacks.of(id)
}

// readStacks reads all frames with stacks.
func (r *Reader) readStacks() {
	tables := &r.stacks.tables
	bytes := 0
	var paths []mappingTexts
	for i := range r.frames {
		f := &r.frames[i]
		if f.kind != stacksFrame {
			continue
		}
		var m wire.Stacks
		bytes += int(f.size)
		if bytes > maxStackBytes || r.load(f, &m, &buffers{}) != nil || !tables.add(&m, &paths) {
			r.missing.add(missing{first: f.first, last: f.last, damaged: true, stacks: true})
		}
	}
	tables.sort(paths)
}

func descriptor(m proto.Message) protoreflect.MessageDescriptor {
	return m.ProtoReflect().Descriptor()
}

// Size returns the size of the file when it was opened, in bytes.
func (r *Reader) Size() int64 { return r.size }
