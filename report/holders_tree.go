// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/holders"
)

// HolderNode is a step of the paths that keep storages. Names in a row, from a child of the root
// on, read as the path: "model", ".layers", ".*", ".weight".
type HolderNode struct {
	Name     string // "model", ".layers", "[*]", "['exp_avg']", ".grad", " (autograd graph)"; of the root its device
	Place    string // of a child of the root: " of main() (train.py:7)"; "" for variables of modules
	Bytes    uint64 // of this path and those below
	Storages uint64 // likewise
	Grown    Growth // likewise, since an earlier walk; 0 without one
	Own      uint64 // bytes that this very path keeps
	OwnCount uint64 // storages, likewise
	OwnGrown Growth // likewise
	Found    bool   // a path of Python; false for what C++ holds and where no holder was found
	Children []*HolderNode

	index map[string]*HolderNode
}

// Growth is how much more there is than in an earlier walk.
type Growth struct{ Bytes, Storages int64 }

// HolderTree returns the paths of the storages on one device ("cuda:0"), or on all ("") as a tree:
// children with more bytes come first. Numbers are stars. Before is an earlier walk, or nil; what
// only it has stays in the tree without bytes.
func HolderTree(r, before *holders.Result, device string) *HolderNode {
	root := &HolderNode{Name: device, Found: true}
	paths := map[*holders.Holder][]*HolderNode{}
	each := func(r *holders.Result, add func(n *HolderNode, s *holders.Storage, own bool)) {
		for i := range r.Storages {
			s := &r.Storages[i]
			if s.Holder == nil || device != "" && s.DeviceName() != device {
				continue
			}
			path := paths[s.Holder]
			if path == nil {
				path = root.path(s.Holder)
				paths[s.Holder] = path
			}
			for k, n := range path {
				add(n, s, k == len(path)-1)
			}
		}
	}
	each(r, func(n *HolderNode, s *holders.Storage, own bool) {
		n.Bytes += s.Bytes
		n.Storages++
		if own {
			n.Own += s.Bytes
			n.OwnCount++
		}
	})
	if before != nil {
		each(r, func(n *HolderNode, s *holders.Storage, own bool) { n.grow(int64(s.Bytes), 1, own) })
		each(before, func(n *HolderNode, s *holders.Storage, own bool) { n.grow(-int64(s.Bytes), -1, own) })
	}
	root.sort()
	return root
}

func (n *HolderNode) grow(bytes, storages int64, own bool) {
	n.Grown.Bytes += bytes
	n.Grown.Storages += storages
	if own {
		n.OwnGrown.Bytes += bytes
		n.OwnGrown.Storages += storages
	}
}

// Live returns the children that keep something now.
func (n *HolderNode) Live() []*HolderNode {
	for i, c := range n.Children {
		if c.Storages == 0 {
			return n.Children[:i]
		}
	}
	return n.Children
}

// path returns the nodes of a holder, the root first, and makes those that are missing.
func (n *HolderNode) path(h *holders.Holder) []*HolderNode {
	at := h.Root()
	found := at.Kind != holders.RootNone && at.Kind != holders.RootNative
	path := []*HolderNode{n}
	place := untrusted.Clean(at.Place())
	for _, part := range h.Parts() {
		n = n.child(untrusted.Clean(part), place, found)
		place = ""
		path = append(path, n)
	}
	return path
}

func (n *HolderNode) child(name, place string, found bool) *HolderNode {
	key := name + "\x00" + place
	c := n.index[key]
	if c == nil {
		c = &HolderNode{Name: name, Place: place, Found: found}
		if n.index == nil {
			n.index = map[string]*HolderNode{}
		}
		n.index[key] = c
		n.Children = append(n.Children, c)
	}
	return c
}

func (n *HolderNode) sort() {
	slices.SortFunc(n.Children, func(a, b *HolderNode) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Storages, a.Storages), cmp.Compare(b.Grown.Bytes, a.Grown.Bytes), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Place, b.Place))
	})
	n.index = nil
	for _, c := range n.Children {
		c.sort()
	}
}
