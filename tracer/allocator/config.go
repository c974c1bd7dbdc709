// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"debug/elf"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/internal/elffile"
	"github.com/vramprof/vramprof/tracer/holders/peek"
)

const (
	// config leads to the settings of the allocator, once they were read.
	config      = "_ZZN3c104cuda20CUDACachingAllocator19CUDAAllocatorConfig8instanceEvE10s_instance"
	configSize  = 256  // of the object, at most
	maxSettings = 4096 // bytes of text
	stringSize  = 32   // of a std::string: pointer, length, and the room or 16 bytes of text
)

// Fields are the offsets of what the kernel half reads of a Block, in bytes.
type Fields struct{ Ptr, Size, Requested, Pool, Stream, Allocated, Uses, Events, Owner uint8 }

// Fields returns the offsets in a Block, and in its pool. It returns false before PyTorch 2.0,
// whose blocks do not have the requested size.
func (l *Layout) Fields() (f Fields, ok bool) {
	owner := setSize + 8 // behind the sets and a bool
	if l.pair {
		owner += setSize
	}
	return Fields{
		uint8(l.ptr), uint8(l.size), uint8(l.requested), uint8(l.pool), blockStream, uint8(l.ptr + 8), streamUses, uint8(l.next + 8), uint8(owner),
	}, l.requested >= 0
}

// Settings returns the settings that the allocator uses, as in PYTORCH_CUDA_ALLOC_CONF, also where
// the program has changed them. It returns false where the process has none yet, or keeps them
// elsewhere than PyTorch 2.1 to 2.6.
func Settings(m Memory) (text string, ok bool) {
	r := newReader(m, maxLib)
	r.begin()
	defer r.end()
	// Each library that uses them may have the variable, but all use one.
	r.files(func(g peek.Region) bool { return ofLibrary(g) || strings.Contains(g.Path, "libtorch_cuda") }, func(base uint64, f *elffile.File) bool {
		_ = f.Lookup(config, func(_ uint64, s elf.Sym64) bool {
			if s.Shndx != uint16(elf.SHN_UNDEF) && s.Value != 0 {
				if object := r.U64(base + s.Value); r.pointer(object) {
					text, ok = r.settingsIn(object)
				}
			}
			return !ok
		})
		return !ok
	})
	return text, ok
}

// settingsIn finds the only std::string in an object.
func (r *reader) settingsIn(object uint64) (text string, ok bool) {
	b := r.get(object, configSize)
	for o := 0; o+stringSize <= len(b); o += 8 {
		found, is := r.stringAt(b[o:], object+uint64(o))
		if !is {
			continue
		}
		if ok && found != text {
			return "", false
		}
		text, ok = found, true
	}
	return text, ok
}

// stringAt reads a std::string: its text ends with a zero and has no other character that settings
// do not have.
func (r *reader) stringAt(b []byte, at uint64) (string, bool) {
	data, length := word(b, 0), word(b, 8)
	var text []byte
	switch {
	case data == at+16 && length < 16:
		text = b[16 : 16+length+1]
	case length < 16 || length > maxSettings || word(b, 16) < length || word(b, 16) > 2*maxSettings || data == at+16:
		return "", false
	default:
		text = r.get(data, int(length)+1)
	}
	if len(text) != int(length)+1 || text[length] != 0 || slices.ContainsFunc(text[:length], func(c byte) bool { return c < ' ' || c > '~' }) {
		return "", false
	}
	return string(text[:length]), true
}
