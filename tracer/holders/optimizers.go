// SPDX-License-Identifier: Apache-2.0

package holders

import "github.com/vramprof/vramprof/tracer/ledger/modelpart"

// markParameters marks what optimizers have in param_groups[*]['params'] as weights: also plain
// tensors, such as a picture or 32-bit copies of weights. Paths do not show it, since most lead
// elsewhere.
func (s *search) markParameters() {
	for _, a := range s.optimizers {
		s.eachNamed(a, "param_groups", func(groups uint64) {
			s.eachElement(groups, func(group uint64) {
				if t := s.py.typeOf(group); t == nil || t.kind != kindDict {
					return
				}
				s.py.eachItem(group, func(key, value uint64) {
					if s.py.str(key) == "params" {
						s.eachElement(value, s.markWeight)
					}
				})
			})
		})
	}
}

func (s *search) markWeight(tensor uint64) {
	if !s.isTensor(tensor) {
		return
	}
	impl := s.py.U64(tensor + s.storages.torch.impl)
	if !s.cpp.classOf(impl).is(roleTensor) {
		return
	}
	if st := s.storages.known[s.py.U64(impl+s.storages.torch.storage)]; st != nil {
		st.parts |= modelpart.Of(modelpart.Weight)
	}
}

// eachNamed visits the attribute of an instance that has a name.
func (s *search) eachNamed(a uint64, name string, visit func(value uint64)) {
	is := func(key, value uint64) {
		if s.py.str(key) == name {
			visit(value)
		}
	}
	t := s.py.typeOf(a)
	if t == nil {
		return
	}
	if dict, keys, values := s.py.attributes(a, t); dict != 0 {
		s.py.eachItem(dict, is)
	} else if keys != 0 {
		s.py.eachKey(keys, values, is)
	}
}

// eachElement visits the elements of a list.
func (s *search) eachElement(list uint64, visit func(element uint64)) {
	t := s.py.typeOf(list)
	if t == nil || t.kind != kindList {
		return
	}
	at, n := s.py.U64(list+listItems), s.py.U64(list+obSize)
	if !s.spend(n) {
		return
	}
	for k := uint64(0); k < n && !s.py.late(); k++ {
		visit(s.py.U64(at + 8*k))
	}
}
