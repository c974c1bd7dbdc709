// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"encoding/binary"
	"slices"

	"github.com/vramprof/vramprof/tracer/holders/peek"
	"github.com/vramprof/vramprof/tracer/ledger/modelpart"
)

// storages are those of PyTorch that were found, and how its objects are laid out.
type storages struct {
	*heap
	torch torch
	known map[uint64]*storage
	found []*storage // those of known, in the order in which they were found
	impls []uint64   // TensorImpls of all memory, where there are storages without a path
	most  int        // of known and of impls
	slab  []storage  // room for the next ones
}

// scan searches the memory for storages that no Python object leads to, by their vtable. It does so
// only where everything was copied.
func (s *storages) scan(w sweeper) error {
	table, tensor := s.torch.tableOfStorage, s.torch.tableOfTensor
	if table == 0 || !w.whole() {
		return nil
	}
	low := min(table, tensor) // both are of one library
	span := max(table, tensor) - low
	return w.sweep(func(base uint64, p []byte) {
		for word := binary.LittleEndian.Uint64; len(p) >= 32; base, p = base+32, p[32:] {
			if word(p)-low > span && word(p[8:])-low > span && word(p[16:])-low > span && word(p[24:])-low > span {
				continue
			}
			s.match(base, p[:32], table, tensor)
		}
		s.match(base, p, table, tensor)
	})
}

// match enters the storages and the tensors among words, by their vtable.
func (s *storages) match(base uint64, p []byte, table, tensor uint64) {
	for ; len(p) >= 8; base, p = base+8, p[8:] {
		switch binary.LittleEndian.Uint64(p) {
		case table:
			s.find(base)
		case tensor:
			if len(s.impls) < s.most {
				s.impls = append(s.impls, base)
			}
		}
	}
}

// find enters a storage that nothing in Python was found to hold.
func (s *storages) find(st uint64) {
	if s.known[st] != nil || len(s.known) >= s.most {
		return
	}
	r := s.read(st)
	if r == nil || !peek.Pointer(r.data&^7) || r.bytes == 0 {
		return
	}
	r.holder = -1
	s.enter(r)
}

// storage is a StorageImpl and who holds it.
type storage struct {
	address    uint64 // of the StorageImpl
	data       uint64
	bytes      uint64
	deviceType uint8
	device     int8
	tensor     uint64 // a TensorImpl that has it, or 0
	holder     int32  // the node with the cheapest path
	others     []int32
	uses       []uint64  // TensorImpls that have it, at most maxUses + 1
	first      [1]uint64 // memory of uses: most storages have one
	native     string    // what holds it where no path leads to it, or ""
	result     int       // index of its Storage, or -1
	parts      modelpart.Set
}

// use notes that a tensor has the storage.
func (r *storage) use(impl uint64) {
	if impl != 0 && len(r.uses) <= maxUses && !slices.Contains(r.uses, impl) {
		r.uses = append(r.uses, impl)
	}
}

func (s *storages) enter(r *storage) {
	s.known[r.address] = r
	s.found = append(s.found, r)
}

// read reads a StorageImpl: data, deleter, context, device, bytes.
func (s *storages) read(st uint64) *storage {
	at := st + s.torch.storage
	if !s.cpp.classOf(st).is(roleStorage) || s.py.U32(st+8) == 0 {
		return nil
	}
	device := s.py.U64(at + 24)
	if len(s.slab) == 0 {
		s.slab = make([]storage, slabStorages)
	}
	r := &s.slab[0]
	*r = storage{address: st, data: s.py.U64(at), bytes: s.py.U64(at + 32), deviceType: uint8(device), device: int8(device >> 8), result: -1}
	if r.bytes >= maxStorageBytes || r.deviceType >= 32 {
		return nil
	}
	s.slab = s.slab[1:]
	r.uses = r.first[:0]
	return r
}

const (
	slabStorages       = 256
	calibrationTensors = 300
	maxStorageBytes    = 1 << 46
)

// torch is where PyTorch's objects have their fields, voted for by the tensors themselves.
type torch struct {
	found          bool
	impl           uint64 // of the TensorImpl in a Python tensor
	storage        uint64 // of the StorageImpl in a TensorImpl, and of the data in a StorageImpl
	object         uint64 // of the Python object in a TensorImpl, or 0
	grad           uint64 // in AutogradMeta; grad_fn follows
	votes          int    // tensors that agree
	tried          int
	tableOfStorage uint64 // StorageImpl's vtable
	tableOfTensor  uint64 // TensorImpl's vtable
}

// layoutVote is one way in which a tensor can be read.
type layoutVote struct{ impl, storage, object uint64 }

// calibrate finds the layout that most tensors agree on. The pointer back to the Python object
// proves it.
func (s *storages) calibrate(tensors []uint64) {
	s.known = make(map[uint64]*storage, len(tensors))
	votes := map[layoutVote]int{}
	grads := map[uint64]int{}
	tables := map[uint64]int{}
	stride := max(1, len(tensors)/calibrationTensors)
	tried := 0
	for k := 0; k < len(tensors); k += stride {
		tried++
		s.vote(tensors[k], votes, grads, tables)
	}
	var best layoutVote
	for v, n := range votes {
		if n > votes[best] || n == votes[best] && v.object > best.object {
			best = v
		}
	}
	if votes[best] == 0 {
		return
	}
	s.torch = torch{found: true, impl: best.impl, storage: best.storage, object: best.object, grad: 40, votes: votes[best], tried: tried}
	if grads[16] > grads[40] {
		s.torch.grad = 16
	}
	for table, n := range tables {
		if s.cpp.classOfTable(table).is(roleStorage) {
			if n > tables[s.torch.tableOfStorage] {
				s.torch.tableOfStorage = table
			}
		} else if n > tables[s.torch.tableOfTensor] {
			s.torch.tableOfTensor = table
		}
	}
}

// vote lets one tensor say in which layouts it makes sense.
func (s *storages) vote(a uint64, votes map[layoutVote]int, grads, tables map[uint64]int) {
	py := s.py
	for _, at := range []uint64{16, 24, 32} {
		impl := py.U64(a + at)
		if !s.cpp.classOf(impl).is(roleTensor) {
			continue
		}
		for _, so := range []uint64{16, 24} {
			st := py.U64(impl + so)
			if !s.cpp.classOf(st).is(roleStorage) || py.U64(st+so+24)&255 >= 24 || py.U64(st+so+32) >= maxStorageBytes {
				continue
			}
			var object uint64
			for o := so + 8; o < so+64; o += 8 {
				if py.U64(impl+o)&^1 == a {
					object = o
					break
				}
			}
			votes[layoutVote{at, so, object}]++
			tables[py.U64(st)]++
			tables[py.U64(impl)]++
			if meta := py.U64(impl + so + 8); s.cpp.classOf(meta).is(roleMeta) {
				for _, g := range []uint64{16, 40} {
					grads[g] += s.fitsGrad(py.U64(meta+g), py.U64(meta+g+8))
				}
			}
		}
	}
}

// fitsGrad returns how many of a gradient and its function there are, negative if one is neither.
func (s *storages) fitsGrad(grad, fn uint64) (n int) {
	if grad != 0 {
		if !s.cpp.classOf(grad).is(roleTensor) {
			return -1
		}
		n++
	}
	if fn != 0 {
		if !s.cpp.classOf(fn).is(roleNode) {
			return -1
		}
		n++
	}
	return n
}
