// SPDX-License-Identifier: Apache-2.0

package holders

import "encoding/binary"

// scanStorages searches the memory for storages that no Python object leads to, by their vtable. It
// does so only where everything was copied.
func (w *walk) scanStorages() error {
	s := w.search
	table, tensor := s.torch.tableOfStorage, s.torch.tableOfTensor
	if _, image := w.mem.(*Image); table == 0 || !s.py.whole && !image {
		return nil
	}
	return w.sweep(func(base uint64, p []byte) {
		for ; len(p) >= 8; base, p = base+8, p[8:] {
			switch binary.LittleEndian.Uint64(p) {
			case table:
				s.findStorage(base)
			case tensor:
				if len(s.impls) < s.maxNodes {
					s.impls = append(s.impls, base)
				}
			}
		}
	})
}

// findStorage enters a storage that nothing in Python was found to hold.
func (s *search) findStorage(st uint64) {
	if s.storages[st] != nil || len(s.storages) >= s.maxNodes {
		return
	}
	r := s.readStorage(st)
	if r == nil || !pointer(r.data&^7) || r.bytes == 0 {
		return
	}
	r.holder = -1
	s.enterStorage(r)
}
