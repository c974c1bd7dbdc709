// SPDX-License-Identifier: Apache-2.0

package torchfile

import (
	"encoding/binary"
	"reflect"
	"strings"

	"github.com/vramprof/vramprof/internal/lazyregexp"
	"github.com/vramprof/vramprof/internal/pickle"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

const (
	maxFrames = 512 // of a stack
	maxText   = 1 << 10

	markNoStack = "[no stack recorded]"
	markBefore  = "[before the trace]"
)

// purpose is what a stack allocated: the same frames are two stacks, of a segment and of a block.
type purpose byte

const (
	ofBlock purpose = iota
	ofSegment
	ofMapping // of an expandable segment
)

// stacks numbers the stacks of a file: equal frames are one stack, whatever list they are in. It
// implements callstack.Stacks.
type stacks struct {
	lists  map[listKey]uint64
	byText map[string]uint64 // of frames' numbers
	frames map[callstack.Frame]uint32
	dicts  map[uintptr]uint32 // numbers of frames by their dictionaries, which the file keeps
	known  []callstack.Frame

	mappings map[string]*callstack.Mapping // by file
	stacks   [][]uint32                    // by id - 1
}

type listKey struct {
	list *pickle.List
	of   purpose
}

func newStacks() *stacks {
	return &stacks{lists: map[listKey]uint64{}, byText: map[string]uint64{}, frames: map[callstack.Frame]uint32{}, dicts: map[uintptr]uint32{}, mappings: map[string]*callstack.Mapping{}}
}

// Stack implements callstack.Stacks.
func (s *stacks) Stack(id uint64) (list []callstack.Frame) {
	if id == 0 || id > uint64(len(s.stacks)) {
		return nil
	}
	for _, n := range s.stacks[id-1] {
		list = append(list, s.known[n])
	}
	return list
}

// Names of libraries that the format does not have. The allocator's own is how reports recognize
// segments.
var (
	libAllocator = &callstack.Mapping{Path: "libc10_cuda.so"}
	libTorch     = &callstack.Mapping{Path: "libtorch.so"}
)

// calls begin the stacks: PyTorch records its own frames only from the allocator's callers on.
var calls = [...][]callstack.Frame{
	ofBlock:   nil,
	ofSegment: {{Function: "cudaMalloc"}, {Function: "c10::cuda::CUDACachingAllocator", Mapping: libAllocator}},
	ofMapping: {{Function: "cuMemCreate"}, {Function: "c10::cuda::CUDACachingAllocator", Mapping: libAllocator}},
}

// id returns the id of a list of frames; nil is none.
func (s *stacks) id(frames *pickle.List, of purpose) uint64 {
	key := listKey{frames, of}
	if id, known := s.lists[key]; known {
		return id
	}
	var numbers []uint32
	if frames != nil {
		for _, x := range frames.Items[:min(len(frames.Items), maxFrames)] {
			if n, named := s.frame(dict(x)); named {
				numbers = append(numbers, n)
			}
		}
	}
	if len(numbers) == 0 {
		numbers = append(numbers, s.number(callstack.Frame{Function: markNoStack, Mark: true}))
	}
	id := s.intern(numbers, of)
	s.lists[key] = id
	return id
}

// mark returns the id of a stack that is a remark.
func (s *stacks) mark(text string, of purpose) uint64 {
	return s.intern([]uint32{s.number(callstack.Frame{Function: text, Mark: true})}, of)
}

func (s *stacks) intern(numbers []uint32, of purpose) uint64 {
	var all []uint32
	for _, f := range calls[of] {
		all = append(all, s.number(f))
	}
	all = append(all, numbers...)
	var key []byte
	for _, n := range all {
		key = binary.LittleEndian.AppendUint32(key, n)
	}
	id, known := s.byText[string(key)]
	if !known {
		s.stacks = append(s.stacks, all)
		id = uint64(len(s.stacks))
		s.byText[string(key)] = id
	}
	return id
}

func (s *stacks) number(f callstack.Frame) uint32 {
	n, known := s.frames[f]
	if !known {
		n = uint32(len(s.known))
		s.known, s.frames[f] = append(s.known, f), n
	}
	return n
}

// unnamed is the number of a frame that is left out.
const unnamed = ^uint32(0)

// frame returns the number of a frame, or false for one without a name.
func (s *stacks) frame(d pickle.Dict) (uint32, bool) {
	if d == nil {
		return 0, false
	}
	at := reflect.ValueOf(d).Pointer()
	n, known := s.dicts[at]
	if !known {
		n = unnamed
		if f, named := s.frameOf(d); named {
			n = s.number(f)
		}
		s.dicts[at] = n
	}
	return n, n != unnamed
}

var (
	// The frames that record a stack.
	recorders = lazyregexp.New(`^torch::(unwind::|CapturedTraceback::)`)
	// Names in PyTorch's namespaces; before them may stand a type, or that it is a thunk.
	torchName  = lazyregexp.New(`(^|^[\w:<>*& ]+ )(at|c10|torch|caffe2|std)::`)
	nativeFile = lazyregexp.New(`\.(c|cc|cpp|cxx|cu|h|hh|hpp|cuh|inl|S)$`)
)

// frameOf returns a frame, or false for one without a name.
func (s *stacks) frameOf(d pickle.Dict) (callstack.Frame, bool) {
	name, file := bounded(str(d["name"])), bounded(str(d["filename"]))
	ours := file == "" // PyTorch writes "??" for an unknown file, vramprof nothing
	if file == "??" {
		file = ""
	}
	if name == "" || name == "??" || recorders.MatchString(name) {
		return callstack.Frame{}, false
	}
	f := callstack.Frame{Function: name, File: file}
	if line, ok := number(d["line"]); ok && line < 1<<31 {
		f.Line = int(line)
	}
	switch {
	case ours && !strings.HasPrefix(name, "cu"): // a remark or a step of a holder's path
		f.Mark = true
	case file != "" && f.Line == 0 && !nativeFile.MatchString(file): // vramprof writes the library of native code
		f.File, f.Mapping = "", s.mapping(file)
	case file == "" && torchName.MatchString(name):
		f.Mapping = libTorch
	case file != "" && !nativeFile.MatchString(file):
		f.Python = true
	}
	return f, true
}

func (s *stacks) mapping(file string) *callstack.Mapping {
	m := s.mappings[file]
	if m == nil {
		m = &callstack.Mapping{Path: file}
		s.mappings[file] = m
	}
	return m
}

// bounded cleans a text of the file and cuts it.
func bounded(text string) string {
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return untrusted.Clean(text)
}
