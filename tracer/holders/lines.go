// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"cmp"
	"fmt"
	"slices"
)

// maxAlsoLines bounds the further holders that a line names.
const maxAlsoLines = 3

// Line sums the storages that holders of one pattern keep on one device.
type Line struct {
	Holder     string   // the path, with a star for each number: "model.layers.*.weight"
	Class      string   // the same path from its innermost class on: "Trainer.history[*]"; "" if none
	Path       []string // the same path in pieces, as Parts returns them
	Place      string   // where it begins, of a function's variable: "main() (train.py:7)"
	Function   string   // of Place: "main()"; "a function" if unknown
	Now        int      // the line that Function executed when it was read; 0: unknown
	Device     string   // "cuda:0", "cpu"
	Found      bool     // the path leads from Python to the storages
	Bytes      uint64
	Storages   uint64
	Container  string // class of the innermost container: "list"; "" without one
	Containers int    // how many different containers
	Entries    int    // of all of them, as their lengths say; -1: unknown
	InMotion   uint64 // storages that changed while they were read
	Also       []string

	lengths map[uint64]int // of containers, by address
}

// Lines sums a result by holder and device, the largest first. Their bytes add up to those of
// all storages.
func (r *Result) Lines() []Line {
	type key struct {
		pattern string
		device  string
	}
	at := map[key]int{}
	also := []map[string]uint64{}
	var list []Line
	for i := range r.Storages {
		s := &r.Storages[i]
		k := key{s.Holder.Pattern(), s.DeviceName()}
		n, known := at[k]
		if !known {
			n = len(list)
			at[k] = n
			kind := s.Holder.root.Kind
			list = append(list, Line{
				Holder: k.pattern, Class: s.Holder.ByClass(), Path: s.Holder.Parts(), Place: s.Holder.root.Where(), Function: s.Holder.root.function(), Now: s.Holder.root.Now, Device: k.device, lengths: map[uint64]int{},
				Found: kind != RootNone && kind != RootNative,
			})
			also = append(also, map[string]uint64{})
		}
		list[n].add(s)
		for _, h := range s.Also {
			also[n][h.Pattern()]++
		}
	}
	for n := range list {
		list[n].finish(also[n])
	}
	slices.SortFunc(list, func(a, b Line) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Device, b.Device), cmp.Compare(a.Holder, b.Holder))
	})
	return list
}

func (l *Line) add(s *Storage) {
	l.Bytes += s.Bytes
	l.Storages++
	if s.InMotion {
		l.InMotion++
	}
	if c := s.Container; c.Address != 0 {
		l.Container = c.Class
		l.lengths[c.Address] = c.Entries
	}
}

// finish sums the containers, and names further holders of at least half of the storages. Those of
// fewer are mostly variables of calls that run.
func (l *Line) finish(also map[string]uint64) {
	l.Containers = len(l.lengths)
	for _, n := range l.lengths {
		if n < 0 || l.Entries < 0 {
			l.Entries = -1
			continue
		}
		l.Entries += n
	}
	delete(also, l.Holder)
	for pattern, storages := range also {
		if 2*storages >= l.Storages {
			l.Also = append(l.Also, pattern)
		}
	}
	slices.SortFunc(l.Also, func(a, b string) int { return cmp.Or(cmp.Compare(also[b], also[a]), cmp.Compare(a, b)) })
	l.Also = l.Also[:min(len(l.Also), maxAlsoLines)]
}

// DeviceName returns the device as PyTorch writes it: "cuda:0", "cpu".
func (s *Storage) DeviceName() string {
	switch s.DeviceType {
	case deviceCPU:
		return "cpu"
	case deviceCUDA:
		return fmt.Sprintf("cuda:%d", max(s.Device, 0))
	}
	return fmt.Sprintf("device %d:%d", s.DeviceType, s.Device)
}
