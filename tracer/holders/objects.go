// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
)

// objectHolder returns the path to an object that holds the address of an allocation, with the
// object's class: "cache['x'].gpu_data (numba DeviceNDArray)". What objects of a library consist of
// is cut off behind the first attribute.
func (n *namer) objectHolder(i int32, inside bool) *Holder {
	chain := []int32{i} // from the object back to the last step that is no attribute
	for k := i; len(chain) < maxDepth && n.isField(k); {
		if k = n.nodes[k].from; k < 0 {
			break
		}
		chain = append(chain, k)
	}
	class, end := "", i
	for k := len(chain) - 1; k >= 0; k-- {
		if class = n.libraryClass(chain[k]); class != "" {
			end = n.firstField(chain[:k+1])
			break
		}
	}
	if t := n.py.typeOf(n.nodes[i].address); class == "" && t != nil {
		class = t.class()
	}
	if inside {
		class = strings.TrimPrefix(class+", pointer inside", ", ")
	}
	return n.withObject(n.holder(end), class)
}

// withObject returns the same path with the class of the object behind it.
func (n *namer) withObject(h *Holder, class string) *Holder {
	l := link{root: h.root, parent: h, object: class}
	if n.known[l] == nil {
		with := *h
		with.object = class
		n.known[l] = &with
	}
	return n.known[l]
}

// isField reports whether a node is a part of what holds it: an attribute or a field.
func (n *namer) isField(i int32) bool {
	switch n.nodes[i].step {
	case StepAttr, StepField, stepDict, stepThrough:
		return n.nodes[i].from >= 0
	}
	return false
}

// firstField returns the node of the first attribute of a chain, which is from its end.
func (n *namer) firstField(chain []int32) int32 {
	for k := len(chain) - 2; k >= 0; k-- {
		if step := n.nodes[chain[k]].step; step == StepAttr || step == StepField {
			return chain[k]
		}
	}
	return chain[0]
}

// libraryClass returns "numba DeviceNDArray" for an instance of a class of a library, or "".
func (n *namer) libraryClass(i int32) string {
	to := n.nodes[i]
	t := n.py.typeOf(to.address)
	if t == nil || to.flags&nodeCPP != 0 || t.kind != kindOther {
		return ""
	}
	module := n.moduleOf(t)
	if !n.libraries[module] {
		return ""
	}
	if n.hideNames {
		return t.class()
	}
	return cut60(untrusted.Clean(module)) + " " + t.class()
}

// moduleOf returns the package that defines a class: "numba" of "numba.cuda.cudadrv.devicearray".
func (n *namer) moduleOf(t *pyType) (module string) {
	module, _, dotted := strings.Cut(t.name, ".")
	if dotted {
		return module
	}
	module = ""
	if t.heap() {
		n.py.eachItem(n.py.u64(t.address+tpDict), func(key, value uint64) {
			if module == "" && n.py.str(key) == "__module__" {
				module, _, _ = strings.Cut(n.py.str(value), ".")
			}
		})
	}
	return module
}
