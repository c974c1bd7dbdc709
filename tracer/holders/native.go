// SPDX-License-Identifier: Apache-2.0

package holders

import "encoding/binary"

// scanStorages searches the copied memory for storages that no Python object leads to, by their
// vtable. It does so only where everything was copied.
func (s *search) scanStorages() {
	table, tensor := s.torch.tableOfStorage, s.torch.tableOfTensor
	if table == 0 || !s.py.whole {
		return
	}
	for key, ch := range s.py.chunks {
		for k, p := range ch {
			if p == nil || p == unreadable {
				continue
			}
			base := key<<chunkShift + uint64(k)<<pageShift
			for o := 0; o < pageSize; o += 8 {
				switch binary.LittleEndian.Uint64(p[o:]) {
				case table:
					s.found(base + uint64(o))
				case tensor:
					s.impls = append(s.impls, base+uint64(o))
				}
			}
		}
	}
}

// found enters a storage that nothing in Python was found to hold.
func (s *search) found(st uint64) {
	if s.storages[st] != nil || len(s.storages) >= s.maxNodes {
		return
	}
	r := s.readStorage(st)
	if r == nil || !pointer(r.data&^7) || r.bytes == 0 {
		return
	}
	r.holder = -1
	s.storages[st] = r
}
