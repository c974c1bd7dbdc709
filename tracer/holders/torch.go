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
	native     string // what holds it where no path leads to it, or ""
	result     int    // index of its Storage, or -1
}

// layoutVote is one way in which a tensor can be read.
type layoutVote struct{ impl, storage, object uint64 }

// calibrate finds the layout that most tensors agree on. The pointer back to the Python object
// proves it.
func (s *search) calibrate(tensors []uint64) {
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
func (s *search) vote(a uint64, votes map[layoutVote]int, grads, tables map[uint64]int) {
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
func (s *search) fitsGrad(grad, fn uint64) (n int) {
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

// expandTensor enters what a Python tensor holds besides its attributes.
func (s *search) expandTensor(i int32, a uint64, cost int) {
	if !s.torch.found {
		return
	}
	impl := s.py.u64(a + s.torch.impl)
	if !s.cpp.classOf(impl).is(roleTensor) {
		return
	}
	s.expandImpl(i, impl, cost)
	for _, o := range []uint64{8, 16} { // PyTorch hooks
		if v := s.py.u64(a + s.torch.impl + o); s.py.typeOf(v) != nil {
			s.pushPython(v, i, StepAttr, s.name("_backward_hooks"), cost+50)
		}
	}
}

// expandImpl enters what a TensorImpl holds: its storage, its gradient, its graph.
func (s *search) expandImpl(i int32, impl uint64, cost int) {
	py, at := s.py, s.torch.storage
	if st := py.u64(impl + at); st != 0 {
		s.claim(st, impl, i)
	}
	c := s.cpp.classOf(impl)
	if c.name != tensorImpl { // sparse and nested tensors and wrappers have tensors within
		for o := at + 16; o < min(s.chunk(impl), 1024); o += 8 {
			if v := py.u64(impl + o); v != impl && s.cpp.classOf(v).is(roleTensor) {
				s.pushCPP(v, i, stepThrough, 0, cost+costSaved)
			}
		}
	}
	meta := py.u64(impl + at + 8)
	mc := s.cpp.classOf(meta)
	if !mc.is(roleMeta) {
		return
	}
	if grad := py.u64(meta + s.torch.grad); s.cpp.classOf(grad).is(roleTensor) {
		s.pushCPP(grad, i, StepGrad, 0, cost+costGrad)
	}
	if fn := py.u64(meta + s.torch.grad + 8); s.cpp.classOf(fn).is(roleNode) {
		s.pushCPP(fn, i, StepGraph, 0, cost+costGraph)
	}
	if mc.name != autogradMeta { // a view knows its base
		for o := s.torch.grad + 16; o < min(s.chunk(meta), 512); o += 8 {
			// What has no forward gradient has words that are out of use there: a base has the same storage.
			if v := py.u64(meta + o); v != impl && s.cpp.classOf(v).is(roleTensor) && py.u64(v+at) == py.u64(impl+at) {
				s.pushCPP(v, i, StepBase, 0, cost+costGraph)
				break
			}
		}
	}
}

// claim enters a storage, or adds a holder to it. Nodes are expanded in the order of their cost, so
// the first holder is the cheapest.
func (s *search) claim(st, impl uint64, i int32) {
	if s.visit != nil {
		s.visit(st)
		return
	}
	if s.onlyNew > 0 && i < s.onlyNew {
		return
	}
	r := s.storages[st]
	if r == nil {
		if r = s.readStorage(st); r == nil {
			return
		}
		r.tensor, r.holder = impl, i
		s.enterStorage(r)
		return
	}
	// What pybind11 wraps can have words that are out of use: it never is a further holder.
	if r.holder != i && len(r.others) < maxAlso && s.nodes[i].cost < costWrapped {
		r.others = append(r.others, i)
	}
}

func (s *search) enterStorage(r *storage) {
	s.storages[r.address] = r
	s.found = append(s.found, r)
}

// readStorage reads a StorageImpl: data, deleter, context, device, bytes.
func (s *search) readStorage(st uint64) *storage {
	at := st + s.torch.storage
	if !s.cpp.classOf(st).is(roleStorage) || s.py.u32(st+8) == 0 {
		return nil
	}
	device := s.py.u64(at + 24)
	r := &storage{address: st, data: s.py.u64(at), bytes: s.py.u64(at + 32), deviceType: uint8(device), device: int8(device >> 8), result: -1}
	if r.bytes >= maxStorageBytes || r.deviceType >= 32 {
		return nil
	}
	return r
}

// chunk returns the size of the malloc chunk that begins at an address, as glibc writes it in front
// of it, or 0.
func (s *search) chunk(a uint64) uint64 {
	n := s.py.u64(a-8) &^ 7
	if a%16 != 0 || n%16 != 0 || n < 32 || n > 1<<24 {
		return 0
	}
	return n - 8
}

// wholeChunk reports whether a chunk begins at an address: the next one says that this is in use, or it
// has a mapping of its own.
func (s *search) wholeChunk(a uint64) bool {
	const mapped = 2
	n := s.chunk(a)
	if s.py.u64(a-8)&mapped != 0 {
		return n > 0 && (a-16)%pageSize == 0 && (n+24)%pageSize <= 16 // a recent glibc counts 16 bytes less
	}
	next := s.py.u64(a + n)
	return n > 0 && next&1 == 1 && next&^7 >= 32 && next&^7 < 1<<40
}

// extent returns how much of a C++ object can be looked at.
func (s *search) extent(a uint64) uint64 {
	if s.cpp.classOf(a - 16).is(roleShared) {
		if n := s.chunk(a - 16); n > 16 {
			return min(n-16, maxChunk)
		}
	} else if n := s.chunk(a); n > 0 {
		return min(n, maxChunk)
	}
	return unknownChunk
}
