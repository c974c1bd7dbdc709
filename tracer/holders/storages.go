// SPDX-License-Identifier: Apache-2.0

package holders

import "encoding/binary"

// storages are those of PyTorch that were found, and how its objects are laid out.
type storages struct {
	*heap
	torch torch
	known map[uint64]*storage
	found []*storage // those of known, in the order in which they were found
	impls []uint64   // TensorImpls of all memory, where there are storages without a path
	most  int        // of known and of impls
}

// scan searches the memory for storages that no Python object leads to, by their vtable. It does so
// only where everything was copied.
func (s *storages) scan(w sweeper) error {
	table, tensor := s.torch.tableOfStorage, s.torch.tableOfTensor
	if table == 0 || !w.whole() {
		return nil
	}
	return w.sweep(func(base uint64, p []byte) {
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
	})
}

// find enters a storage that nothing in Python was found to hold.
func (s *storages) find(st uint64) {
	if s.known[st] != nil || len(s.known) >= s.most {
		return
	}
	r := s.read(st)
	if r == nil || !pointer(r.data&^7) || r.bytes == 0 {
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
	native     string // what holds it where no path leads to it, or ""
	result     int    // index of its Storage, or -1
}

func (s *storages) enter(r *storage) {
	s.known[r.address] = r
	s.found = append(s.found, r)
}

// read reads a StorageImpl: data, deleter, context, device, bytes.
func (s *storages) read(st uint64) *storage {
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
