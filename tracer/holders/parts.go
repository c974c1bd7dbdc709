// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"cmp"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

// NewHolder returns a path from a root along steps.
func NewHolder(root Root, steps ...Step) *Holder {
	h := beginning(&root, true)
	for _, s := range steps {
		h = h.then(s)
	}
	return h
}

// beginning returns the path without a step.
func beginning(root *Root, named bool) *Holder {
	h := &Holder{root: root, named: named, owner: &Step{Class: root.Class}, ways: retention.Known, cache: isCacheClass(root.Class) || isCacheName(root.Name)}
	if root.Ended && root.Where() != "" {
		h.ways |= retention.EndedByError
	}
	if root.Kind == RootCycle {
		h.ways |= retention.Cycle
	}
	return h
}

// then returns the path with one more step.
func (h *Holder) then(s Step) *Holder {
	next := &Holder{root: h.root, parent: h, step: s, depth: h.depth + 1, relation: h.relation, named: h.named}
	switch s.Kind {
	case StepGraph:
		next.relation = Graph
	case StepGrad:
		if h.relation != Graph {
			next.relation = Grad
		}
	case StepBase:
		if h.relation != Graph {
			next.relation = Base
		}
	}
	next.keep()
	return next
}

// Parts returns the pattern in pieces, for a tree: "optimizer", ".state", "[*]", "['exp_avg']". The
// first is the root's variable. Written one after the other, and then the root's Place, they read
// as the Pattern does; the graph stands where it is on the path: " (autograd graph)".
func (h *Holder) Parts() []string {
	var parts []string
	for _, p := range h.pieces() {
		parts = append(parts, p.text)
	}
	return parts
}

// piece is a part of a path.
type piece struct {
	text  string
	joins bool // it stands with the one before it where paths are frames
}

func (h *Holder) pieces() []piece {
	var begin strings.Builder
	h.root.begin(&begin, h.named)
	pieces := make([]piece, 0, h.depth+1)
	if begin.Len() > 0 {
		pieces = append(pieces, piece{text: begin.String()})
	}
	for _, s := range h.Steps() {
		p := piece{text: inGraph, joins: true}
		if s.Kind != StepGraph {
			var b strings.Builder
			s.write(&b, true, h.named)
			p = piece{text: b.String(), joins: b.String() == "[*]" || b.String() == ".*"}
		}
		if len(pieces) == 0 {
			p = piece{text: strings.TrimPrefix(p.text, ".")}
		}
		pieces = append(pieces, p)
	}
	if len(pieces) == 0 {
		pieces = append(pieces, piece{text: "?"})
	}
	if h.object != "" {
		pieces = append(pieces, piece{text: " (" + h.object + ")", joins: true})
	}
	return pieces
}

// Place returns where the root is, as it stands behind a path: " of main() (train.py:7)"; "" for
// a module, a cycle and what Python does not hold.
func (r Root) Place() string { return r.end() }

// Frames returns the path as the frames of a stack, the root first: "__main__", "model",
// "layers.*", "weight"; "main() (train.py:7)", "outs[*]". Numbers are stars and stand with the
// container that they are in; keys of dictionaries are frames.
func (h *Holder) Frames() []string {
	root, parts := h.Root(), h.pieces()
	var frames []string
	switch root.Kind {
	case RootModule:
		frames = append(frames, cmp.Or(root.Name, "a module"))
		if root.Name != "__main__" && len(parts) > 0 && parts[0].text == root.Name {
			parts = parts[1:]
		}
	case RootLocal, RootTemporary, RootGlobals:
		frames = append(frames, root.Where())
		if root.Kind == RootLocal && root.Name != "" {
			parts[0].text = root.Name
		}
	}
	for i, part := range parts {
		if last := len(frames) - 1; i > 0 && part.joins {
			frames[last] += part.text
			continue
		}
		frames = append(frames, strings.TrimPrefix(part.text, "."))
	}
	for i := range frames {
		frames[i] = untrusted.Clean(frames[i])
	}
	return frames
}
