// SPDX-License-Identifier: Apache-2.0

// Package arenas reads from outside how much of ONNX Runtime's arenas on GPUs is in use.
//
// Its published libraries have no symbols, so an arena is found by its structure alone (BFCArena,
// in onnxruntime/core/framework/bfc_arena.h), and counts only with a proof: its chunks cover each
// of its regions without a gap, and their sums are its own counters. Everything read is hostile.
package arenas

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/vramprof/vramprof/report/purpose"
	"github.com/vramprof/vramprof/tracer/deadline"
	"github.com/vramprof/vramprof/tracer/holders/peek"
)

const (
	patience   = 20 * time.Second
	tries      = 5 // an arena changes while it is read
	pause      = 2 * time.Millisecond
	maxArenas  = 64
	maxRegions = 1 << 12 // of a process
	maxChunks  = 1 << 20 // of a process
)

// provider is the library without which ONNX Runtime uses no GPU of NVIDIA.
const provider = "libonnxruntime_providers_cuda"

// Read returns the arenas of a process that have memory of GPUs, the largest first; none for a
// process without ONNX Runtime's provider for CUDA. With an error, it returns those that are
// proven.
func Read(ctx context.Context, pid uint32) ([]purpose.Arena, error) {
	return deadline.Call(patience, func() ([]purpose.Arena, error) {
		process, err := peek.Open(int(pid))
		if err != nil {
			return nil, nil // as without one: the walk for holders reports why it cannot be read
		}
		defer process.Close()
		if !slices.ContainsFunc(process.Regions(), func(r peek.Region) bool { return strings.HasPrefix(path.Base(r.Path), provider) }) {
			return nil, nil
		}
		for try := 1; ; try++ {
			list, moving, err := find(ctx, process)
			if err != nil || moving == 0 {
				return list, err
			}
			if try == tries {
				return list, fmt.Errorf("arenas of ONNX Runtime that changed during each of %d readings: %d", tries, moving)
			}
			time.Sleep(pause)
			if err := process.Refresh(); err != nil {
				return nil, err
			}
		}
	})
}

// region is an AllocationRegion: memory from the driver, with the handle of the chunk that begins
// at each 256 bytes of it.
type region struct {
	address, bytes, handles uint64
}

const regionBytes = 40

// search looks for arrays of regions, and then for the arenas that have them.
type search struct {
	mem     peek.Memory
	arrays  map[uint64][]region // by the address of their first element
	regions int
	chunks  int // that were read
	next    struct {
		array, address uint64 // where its next element would be
	}
	objects []uint64 // addresses of an arena's vector of regions
}

// find returns the arenas that are proven, and how many objects look like one and are not.
func find(ctx context.Context, mem peek.Memory) (list []purpose.Arena, moving int, err error) {
	s := &search{mem: mem, arrays: map[uint64][]region{}}
	memory := peek.NewCopy(mem, 0) // copies nothing: a sweep needs the memory only once
	defer memory.Close()
	sweep := func(look func(base uint64, words []uint64)) error {
		return memory.Sweep(ctx, func() bool { return false }, inWindows(look))
	}
	if err := sweep(s.lookForRegions); err != nil {
		return nil, 0, err
	}
	if len(s.arrays) == 0 {
		return nil, 0, nil
	}
	if err := sweep(s.lookForArenas); err != nil {
		return nil, 0, err
	}
	list, moving = s.arenas()
	return list, moving, nil
}

// window is how many words after its first one a structure has that a sweep looks for.
const window = regionBytes/8 - 1

// inWindows calls look with the words of each piece of memory, and with the last words of the piece
// before it if that is adjacent. look gets no position twice.
func inWindows(look func(base uint64, words []uint64)) func(base uint64, p []byte) {
	var words []uint64
	var end uint64 // of words
	return func(base uint64, p []byte) {
		if base == end && len(words) >= window {
			words = append(words[:0], words[len(words)-window:]...)
		} else {
			words = words[:0]
		}
		begin := base - uint64(8*len(words))
		for ; len(p) >= 8; p = p[8:] {
			words = append(words, binary.LittleEndian.Uint64(p))
		}
		end = begin + uint64(8*len(words))
		look(begin, words)
	}
}

// lookForRegions finds arrays of regions: address, size, end, number, handles.
func (s *search) lookForRegions(base uint64, words []uint64) {
	for i := 0; i+window < len(words); i++ {
		w := words[i : i+window+1]
		if w[0] == 0 || w[1] == 0 || w[0]+w[1] != w[2] || (w[0]|w[1])%256 != 0 || w[2] < w[0] || w[2] > peek.AddressEnd || !peek.Pointer(w[4]) {
			continue
		}
		if s.regions++; s.regions > maxRegions {
			return
		}
		at := base + uint64(8*i)
		if at != s.next.address {
			s.next.array = at
		}
		s.arrays[s.next.array] = append(s.arrays[s.next.array], region{w[0], w[1], w[4]})
		s.next.address = at + regionBytes
	}
}

// lookForArenas finds vectors of these arrays.
func (s *search) lookForArenas(base uint64, words []uint64) {
	for i := 0; i+window < len(words) && len(s.objects) < maxArenas; i++ {
		// The vector's elements may be followed by ones of another array, or by old ones.
		if list := s.arrays[words[i]]; list != nil {
			if bytes := words[i+1] - words[i]; bytes > 0 && bytes%regionBytes == 0 && bytes/regionBytes <= uint64(len(list)) {
				s.objects = append(s.objects, base+uint64(8*i))
			}
		}
	}
}

// The words of an arena from its vector of regions on.
const (
	regionsBegin = iota
	regionsEnd
	_
	chunksBegin
	chunksEnd
	_
	freeList
	nextID
	allocations // the first of its counters
	reserves
	extensions
	shrinkages
	bytesInUse
	bytesTotal
	maxInUse
	arenaWords
)

// arenas returns what is known of the objects that were found.
func (s *search) arenas() (list []purpose.Arena, moving int) {
	for _, at := range s.objects {
		var o [arenaWords]uint64
		if !s.words(at, o[:]) {
			continue
		}
		regions := s.arrays[o[regionsBegin]]
		n := (o[regionsEnd] - o[regionsBegin]) / regionBytes
		if n > uint64(len(regions)) { // it has changed since
			continue
		}
		if regions = regions[:n]; !s.onGPU(regions) {
			continue
		}
		if a, ok := s.prove(&o, regions); ok {
			list = append(list, a)
			delete(s.arrays, o[regionsBegin]) // no other object has it, but a copy on a stack may
		} else if looksLikeOne(&o) {
			moving++
		}
	}
	slices.SortStableFunc(list, func(a, b purpose.Arena) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return list, moving
}

// looksLikeOne reports whether the counters can be those of an arena.
func looksLikeOne(o *[arenaWords]uint64) bool {
	return o[bytesInUse] <= o[bytesTotal] && o[bytesTotal] <= peek.AddressEnd && o[maxInUse] >= o[bytesInUse] && o[maxInUse] <= peek.AddressEnd
}

// onGPU reports whether the process can read none of the memory itself: an arena of the host has
// the same structure.
func (s *search) onGPU(regions []region) bool {
	for _, r := range regions {
		i, found := slices.BinarySearchFunc(s.mem.Regions(), r.address, func(m peek.Region, a uint64) int {
			switch {
			case m.End <= a:
				return -1
			case m.Start > a:
				return 1
			}
			return 0
		})
		if found && !s.mem.Regions()[i].Forbidden() {
			return false
		}
	}
	return len(regions) > 0
}

// Sizes of a chunk that are tried, bytes: releases differ in what follows its six words.
var chunkSizes = []uint64{56, 64, 72, 80}

// prove walks the chunks of all regions. What the driver gave beyond them, an arena has counted as
// in use: it was reserved.
func (s *search) prove(o *[arenaWords]uint64, regions []region) (a purpose.Arena, ok bool) {
	if !looksLikeOne(o) {
		return a, false
	}
	bytes := o[chunksEnd] - o[chunksBegin]
	for _, size := range chunkSizes {
		if bytes == 0 || bytes%size != 0 {
			continue
		}
		total, used, whole := uint64(0), uint64(0), true
		for _, r := range regions {
			n, ok := s.inUse(r, o[chunksBegin], bytes/size, size)
			whole = whole && ok
			total, used = total+r.bytes, used+n
		}
		if whole && total <= o[bytesTotal] && o[bytesTotal]-total == o[bytesInUse]-used {
			return purpose.Arena{Library: "ONNX Runtime", Bytes: o[bytesTotal], InUse: o[bytesInUse], Peak: o[maxInUse]}, true
		}
	}
	return a, false
}

const none = ^uint64(0) // a handle of no chunk, and the number of a free one

// inUse adds up the chunks of a region that are in use, and reports whether all of them cover it.
func (s *search) inUse(r region, chunks, count, size uint64) (used uint64, ok bool) {
	var first [1]uint64
	if !s.words(r.handles, first[:]) {
		return 0, false
	}
	at, before := r.address, none
	for handle := first[0]; handle != none; {
		var c [6]uint64 // size, requested size, number, address, previous, next
		if s.chunks++; handle >= count || s.chunks > maxChunks || !s.words(chunks+handle*size, c[:]) {
			return 0, false
		}
		if c[0] == 0 || c[0] > r.address+r.bytes-at || c[3] != at || c[4] != before || c[2] != none && c[1] > c[0] {
			return 0, false
		}
		if c[2] != none {
			used += c[0]
		}
		at, before, handle = at+c[0], handle, c[5]
	}
	return used, at == r.address+r.bytes
}

func (s *search) words(address uint64, to []uint64) bool {
	b := make([]byte, 8*len(to))
	if !peek.Pointer(address) {
		return false
	}
	if _, err := s.mem.ReadAt(b, address); err != nil {
		return false
	}
	for i := range to {
		to[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return true
}
