// SPDX-License-Identifier: Apache-2.0

package symbolize

import "maps"

// ForgetFiles closes the files for whose keys, those of AddFile, used is false, and drops the
// warnings about them. AddFile must not be called meanwhile. AppendFrames then returns frames
// without names for them.
func (s *Symbolizer) ForgetFiles(used func(key string) bool) {
	s.mu.Lock()
	var out []*object
	for _, ob := range s.objects {
		if !used(ob.key) {
			s.remove(ob)
			out = append(out, ob)
		}
	}
	maps.DeleteFunc(s.warned, func(_, key string) bool { return !used(key) })
	s.mu.Unlock()
	for _, ob := range out { // waits for lookups under way
		ob.close()
	}
}

// ForgetPerfMaps drops the perf maps of processes that have ended: another process may get such a
// pid.
func (s *Symbolizer) ForgetPerfMaps(ended func(pid uint32) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.jit, func(pid uint32, _ *perfMap) bool { return ended(pid) })
}
