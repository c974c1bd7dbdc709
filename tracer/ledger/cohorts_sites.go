// SPDX-License-Identifier: Apache-2.0

package ledger

// addCohorts gives the new site n its own cohorts, or makes it share those of another size class.
// Windows are stored apart from sites, since they are large and sites move; a reused number has
// windows already.
func (l *Ledger) addCohorts(s *site, n uint32) {
	l.addWindows(s)
	if s.kind == Tensor {
		hash := s.hashButForClass()
		first, known := l.classes[hash]
		if known && l.sites[first].isButForClass(s) {
			l.share(s, first)
			return
		}
		if !known { // otherwise another one has the hash, and its place
			l.classes[hash] = n
		}
	}
	l.addLevels(s)
}

func (l *Ledger) addWindows(s *site) {
	s.own.base, s.own.shift = noBase, firstWindow
	if s.own.parts == nil {
		if len(l.windows) == 0 {
			l.windows = make([]windows, windowsPiece)
		}
		s.own.parts, l.windows = &l.windows[0], l.windows[1:]
	}
}

func (l *Ledger) addLevels(s *site) {
	if s.own.levels != nil {
		return
	}
	if len(l.levels) == 0 {
		l.levels = make([]levels, levelsPiece)
	}
	s.own.levels = &l.levels[0]
	l.levels = l.levels[1:]
}

// share makes the new site s share the cohorts of another one.
func (l *Ledger) share(s *site, first uint32) {
	f := &l.sites[first]
	if f.shared == nil {
		f.shared = new(cohorts)
		*f.shared = f.own
	}
	s.shared = f.shared
	s.shared.adopt(s.own.parts)
	s.own.parts.next, s.shared.parts = s.shared.parts, s.own.parts
}

func (k *siteKey) hashButForClass() uint64 {
	return k.stack ^ uint64(k.process)*0x9e3779b97f4a7c15 ^ uint64(uint32(k.device))<<32
}

func (s *site) isButForClass(x *site) bool {
	key := x.siteKey
	key.class = s.class
	return s.siteKey == key
}
