// SPDX-License-Identifier: Apache-2.0

package holders

// endedFrame returns the root of a variable of a function that an error has ended, where the interpreter,
// IPython or another library keeps the traceback to print it: who reads the path looks for the function, not
// for the printer. An error that the program keeps itself is a holder as any other.
func (n *namer) endedFrame(to node) (Root, bool) {
	if to.step != StepLocal || to.from < 0 {
		return Root{}, false
	}
	frame := n.nodes[to.from]
	tb := n.tracebackOf(to.from)
	if tb < 0 || n.isOwnError(tb) {
		return Root{}, false
	}
	f := n.frameOf(frame.address)
	if f == nil {
		return Root{}, false
	}
	function, file := f.place()
	r := Root{
		Kind: RootLocal, Name: n.readable(n.auxName(to.aux)), Function: n.readable(function), File: n.readable(file), Line: int(f.line), Ended: true,
	}
	if t := n.py.typeOf(to.address); t != nil {
		r.Class = t.class()
	}
	return r, true
}

// tracebackOf returns the traceback that leads to a frame object, directly or by frames that it called, or
// -1.
func (n *namer) tracebackOf(i int32) int32 {
	for range maxFrames {
		if i < 0 {
			break
		}
		t := n.py.typeOf(n.nodes[i].address)
		if t == nil || n.nodes[i].flags&nodeCPP != 0 || t.kind != kindFrame && t.kind != kindTraceback {
			break
		}
		if t.kind == kindTraceback {
			return i
		}
		i = n.nodes[i].from
	}
	return -1
}

// isOwnError reports whether the program keeps an error: neither the path's root belongs to a library or to
// the interpreter, nor does the instance that has the error or its traceback.
func (n *namer) isOwnError(i int32) bool {
	if !n.search.roots[n.rootOf(i)].own {
		return false
	}
	for range maxDepth {
		if i < 0 {
			break
		}
		to := n.nodes[i]
		t := n.py.typeOf(to.address)
		if t == nil || to.flags&nodeCPP != 0 {
			break
		}
		if t.kind == kindOther && t.flags&flagError == 0 {
			return !n.libraries[n.py.moduleOf(t)]
		}
		i = to.from
	}
	return true
}
