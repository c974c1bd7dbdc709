// SPDX-License-Identifier: Apache-2.0

package holders

const (
	calibrationTensors = 300
	maxStorageBytes    = 1 << 46
	maxChunk           = 1 << 16 // bytes of a C++ object that are looked at
	unknownChunk       = 512     // of one whose size the allocator does not tell
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
		impl := py.u64(a + at)
		if !s.cpp.classOf(impl).is(roleTensor) {
			continue
		}
		for _, so := range []uint64{16, 24} {
			st := py.u64(impl + so)
			if !s.cpp.classOf(st).is(roleStorage) || py.u64(st+so+24)&255 >= 24 || py.u64(st+so+32) >= maxStorageBytes {
				continue
			}
			var object uint64
			for o := so + 8; o < so+64; o += 8 {
				if py.u64(impl+o)&^1 == a {
					object = o
					break
				}
			}
			votes[layoutVote{at, so, object}]++
			tables[py.u64(st)]++
			tables[py.u64(impl)]++
			if meta := py.u64(impl + so + 8); s.cpp.classOf(meta).is(roleMeta) {
				for _, g := range []uint64{16, 40} {
					grads[g] += s.fitsGrad(py.u64(meta+g), py.u64(meta+g+8))
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
