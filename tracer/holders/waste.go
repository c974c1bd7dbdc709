// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/tracer/holders/peek"
	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

// WasteKind is why memory could be freed without a loss to the program.
type WasteKind string

const (
	WasteErrors   WasteKind = "errors" // only an error, its traceback or IPython's results keep it
	WasteGone     WasteKind = "gone"   // only an optimizer keeps the parameters, with their gradients and its state of them
	WasteFrozen   WasteKind = "frozen" // gradients of tensors that require none
	WasteViews    WasteKind = "views"  // storages of which all tensors use at most half
	WasteEnded    WasteKind = "ended"  // only a task, or a frame of a function, that has ended keeps it
	WasteCopies   WasteKind = "copies" // models with equal names and shapes, which may all be of use: its Bytes are 0
	noWaste       WasteKind = ""       //
	maxUses                 = 32       // tensors of one storage that are told apart
	leastWaste              = 512      // bytes: the allocator's unit
	minFlagged              = 3        // tensors that must require a gradient for the flag to be known
	flagsEnd                = 168      // bytes behind AutogradMeta's gradient that are searched for the flag
	allocatorUnit           = uint64(512)
)

// Waste is memory that could be freed, of one holder's pattern.
type Waste struct {
	Kind     WasteKind
	Holder   string // as Line.Holder; of copies all: "model and ema.module"
	Device   string
	Index    int    // of the device
	Storages uint64 // of copies those of one
	Bytes    uint64 // that could be freed; no byte is in two of a result
	Whole    uint64 // of the storages
}

// wasteFinder finds what could be freed among the storages of a walk.
type wasteFinder struct {
	*search
	result *Result
	now    *peek.Copy      // of the process as it goes on, or nil
	flag   uint64          // offset of requires_grad in AutogradMeta; 0: unknown
	shapes bool            // the shapes of tensors can be read
	gone   map[uint64]bool // storages of parameters that only an optimizer keeps, by StorageImpl
}

// run sets Result.Waste. It follows verify, so that nothing that moves is called waste.
func (w *wasteFinder) run() {
	if !w.storages.torch.found || w.py.late() {
		return
	}
	w.calibrate()
	w.gone = map[uint64]bool{}
	for _, st := range w.storages.found {
		if s := w.named(st); s != nil && w.knowsAll(st) && inAll(s).Has(retention.ParamGroups) && !s.Holder.retention().Has(retention.Gradient) {
			w.gone[st.address] = true
		}
	}
	type key struct {
		kind           WasteKind
		holder, device string
	}
	at := map[key]int{}
	for _, st := range w.storages.found {
		s := w.named(st)
		if s == nil || w.py.late() {
			continue
		}
		kind, bytes := w.judge(st, s)
		if kind == noWaste || bytes < leastWaste {
			continue
		}
		k := key{kind, s.Holder.Pattern(), s.DeviceName()}
		n, known := at[k]
		if !known {
			n = len(w.result.Waste)
			at[k] = n
			w.result.Waste = append(w.result.Waste, Waste{Kind: kind, Holder: k.holder, Device: k.device, Index: s.Device})
		}
		x := &w.result.Waste[n]
		x.Storages++
		x.Bytes, x.Whole = x.Bytes+bytes, x.Whole+st.bytes
	}
	slices.SortFunc(w.result.Waste, func(a, b Waste) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Holder, b.Holder), cmp.Compare(a.Device, b.Device))
	})
}

// named returns a storage of the result with a path in Python that does not move, or nil.
func (w *wasteFinder) named(st *storage) *Storage {
	if st.result < 0 || st.holder < 0 {
		return nil
	}
	s := &w.result.Storages[st.result]
	if kind := s.Holder.root.Kind; s.InMotion || kind == RootNone || kind == RootNative || kind == RootTemporary {
		return nil
	}
	return s
}

// judge returns why a storage could be freed, and how much of it.
func (w *wasteFinder) judge(st *storage, s *Storage) (WasteKind, uint64) {
	by := inAll(s)
	switch {
	case !w.knowsAll(st): // a way beyond those that were kept may be of use
	case by.Has(retention.LastError), by.Has(retention.EndedByError), by.Has(retention.Traceback), onlyResults(s):
		return WasteErrors, st.bytes
	case by.Has(retention.Ended):
		return WasteEnded, st.bytes
	case w.gone[st.address], by.Has(retention.ParamGroups), w.stateOfGone(st):
		return WasteGone, st.bytes
	case w.frozen(st, s):
		return WasteFrozen, st.bytes
	}
	if s.Holder.root.Kind == RootLocal && s.Holder.depth == 0 { // a function may be working with it
		return noWaste, 0
	}
	if used, ok := w.used(st); ok && used <= st.bytes/2 && w.still(st, used) {
		return WasteViews, st.bytes - used
	}
	return noWaste, 0
}

// knowsAll reports whether the search kept each way that it found to a storage.
func (w *wasteFinder) knowsAll(st *storage) bool {
	return len(st.others) < maxAlso && !slices.ContainsFunc(append([]int32{st.holder}, st.others...), func(i int32) bool { return len(w.also[i]) >= maxAlso })
}

// inAll returns the ways in which all paths to a storage keep it.
func inAll(s *Storage) retention.Set {
	ways := s.Holder.retention()
	for _, h := range s.Also {
		ways &= h.retention()
	}
	return ways
}

// onlyResults reports whether only IPython keeps a storage: Out, and its names for the same
// results.
func onlyResults(s *Storage) bool {
	all := append([]*Holder{s.Holder}, s.Also...)
	return slices.ContainsFunc(all, func(h *Holder) bool { return h.retention().Has(retention.Results) }) &&
		!slices.ContainsFunc(all, func(h *Holder) bool { return !h.retention().Has(retention.Results) && !h.isResultName() })
}

// stateOfGone reports whether a storage is an optimizer's state of a parameter that only it keeps.
func (w *wasteFinder) stateOfGone(st *storage) bool {
	for i, depth := st.holder, 0; i >= 0 && depth < maxDepth; i, depth = w.nodes[i].from, depth+1 {
		n := &w.nodes[i]
		if n.step != StepKey || !w.isTensor(n.aux) {
			continue
		}
		impl := w.py.U64(n.aux + w.storages.torch.impl)
		return w.cpp.classOf(impl).is(roleTensor) && w.gone[w.py.U64(impl+w.storages.torch.storage)] && len(st.others) == 0
	}
	return false
}

// frozen reports whether a storage is the gradient of a tensor that requires none, and nothing else
// keeps it.
func (w *wasteFinder) frozen(st *storage, s *Storage) bool {
	if w.flag == 0 || s.Holder.relation != Grad || len(s.Also) > 0 {
		return false
	}
	from := w.nodes[st.holder].from
	if w.nodes[st.holder].step != StepGrad || from < 0 {
		return false
	}
	owner := w.nodes[from].address
	if w.nodes[from].flags&nodeCPP == 0 {
		owner = w.py.U64(owner + w.storages.torch.impl)
	}
	meta := w.metaOf(owner)
	return meta != 0 && w.byteAt(meta+w.flag) == 0
}

func (w *wasteFinder) byteAt(a uint64) byte { return byte(w.py.U32(a&^3) >> (8 * (a & 3))) }

// calibrate finds out how shapes are read, and where AutogradMeta has requires_grad: the first byte
// that is 1 in some leaves, 0 in the others and in all tensors that a function made or that are
// views.
func (w *wasteFinder) calibrate() {
	begin := w.storages.torch.grad + 32
	ones, wrong := make([]int, flagsEnd), make([]bool, flagsEnd)
	exact, bad, all := 0, 0, 0
	for _, st := range w.storages.found {
		for _, impl := range st.uses {
			if !w.cpp.classOf(impl).is(roleTensor) {
				continue // found after the copy
			}
			all++
			switch t, ok := w.shape(impl); {
			case !ok || t.end > st.bytes: // or it changed while it was copied
				bad++
			case t.bytes == st.bytes:
				exact++
			}
			meta := w.metaOf(impl)
			if meta == 0 || w.py.late() {
				continue
			}
			leaf := w.py.U64(meta+w.storages.torch.grad+8) == 0 && w.baseOf(impl) == 0
			for k := range ones {
				switch b := w.byteAt(meta + begin + uint64(k)); {
				case b > 1, b == 1 && !leaf:
					wrong[k] = true
				case b == 1:
					ones[k]++
				}
			}
		}
	}
	w.shapes = exact > 0 && 10*bad <= all
	best := -1
	for k, n := range ones {
		if best < 0 && !wrong[k] && n >= minFlagged { // it is the first of several flags
			best = k
		}
	}
	if best >= 0 {
		w.flag = begin + uint64(best)
	}
}

// itemSizes are the bytes of an element by c10::ScalarType; 0: unknown or several in a byte.
var itemSizes = [...]uint64{1, 1, 2, 4, 8, 2, 4, 8, 4, 8, 16, 1, 1, 1, 4, 2, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 4, 8}

const (
	maxDims    = 64
	inlineDims = 5  // sizes that lie in the TensorImpl itself, with as many strides
	dimsBytes  = 88 // their number, sizes and strides
)

// shape is what one tensor has of its storage.
type shape struct{ bytes, end uint64 } // of its elements; of the storage up to its last one

// shape reads the sizes, strides, offset, number of elements and type of a TensorImpl. That the
// sizes multiply to the number of elements proves the layout.
func (w *wasteFinder) shape(impl uint64) (shape, bool) {
	if c := w.cpp.classOf(impl); w.storages.torch.object == 0 || c == nil || c.name != tensorImpl {
		return shape{}, false
	}
	at := impl + w.storages.torch.object + 8
	dims := w.py.U64(at)
	offset, elements, scalar := w.py.U64(at+dimsBytes), w.py.U64(at+dimsBytes+8), w.py.U32(at+dimsBytes+16)&0xffff
	if dims > maxDims || scalar >= uint32(len(itemSizes)) || itemSizes[scalar] == 0 || elements >= maxStorageBytes || offset >= maxStorageBytes {
		return shape{}, false
	}
	sizes, strides := at+8, at+8+8*inlineDims
	if dims > inlineDims {
		sizes = w.py.U64(at + 8)
		strides = sizes + 8*dims
	}
	product, last := uint64(1), offset
	for k := range dims {
		size, stride := w.py.U64(sizes+8*k), w.py.U64(strides+8*k)
		if size > maxStorageBytes || stride > maxStorageBytes || size > 0 && product > maxStorageBytes/size || size > 1 && stride > maxStorageBytes/size {
			return shape{}, false
		}
		if product *= size; size > 1 {
			last += (size - 1) * stride
		}
	}
	if product != elements || last >= maxStorageBytes {
		return shape{}, false
	}
	item := itemSizes[scalar]
	if elements == 0 {
		return shape{}, true
	}
	return shape{bytes: min(elements, last+1-offset) * item, end: (last + 1) * item}, true
}

// still reports whether tensors use as much of a storage in the process as it goes on: the copy of
// a tensor can be older than that of its storage.
func (w *wasteFinder) still(st *storage, used uint64) bool {
	if w.now == nil {
		return true
	}
	defer w.readFrom(w.py.Copy)
	w.readFrom(w.now)
	again, ok := w.used(st)
	return ok && again == used
}

// used returns at most how many bytes of a storage tensors use, as they would take in storages of
// their own. It is known only if these tensors are all that refer to the storage, as its count of
// references says. A tensor to which only its views refer, which keep it as their base, uses
// nothing.
func (w *wasteFinder) used(st *storage) (uint64, bool) {
	if !w.shapes || len(st.uses) == 0 || len(st.uses) > maxUses || uint64(w.py.U32(st.address+8)) != uint64(len(st.uses)) {
		return 0, false
	}
	var bases map[uint64]uint32
	for _, impl := range st.uses {
		if base := w.baseOf(impl); base != 0 {
			if bases == nil {
				bases = map[uint64]uint32{}
			}
			bases[base]++
		}
	}
	used := uint64(0)
	for _, impl := range st.uses {
		if n := bases[impl]; n > 0 && w.py.U32(impl+8) == n {
			continue
		}
		t, ok := w.shape(impl)
		if !ok || t.end > st.bytes {
			return 0, false
		}
		used += (t.bytes + allocatorUnit - 1) / allocatorUnit * allocatorUnit
	}
	return used, used > 0
}
