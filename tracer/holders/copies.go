// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/tracer/holders/peek"
)

const (
	maxModules    = 1 << 16 // that are compared
	maxModelDepth = 64
	maxModelDicts = 64
	minModules    = 2 // with parameters, in a tree that is worth comparing: layers of one shape are no copies
)

// copyFinder finds models whose parameters have the same names and shapes.
type copyFinder struct {
	*wasteFinder
	names *namer
	trees map[uint64]*tree // by address of the module
	order []*tree          // as they were found
}

// tree is a torch.nn.Module with all modules in it.
type tree struct {
	node             int32
	address          uint64
	hash             uint64 // of names, shapes and types of its parameters
	params           []parameter
	modules          int // with parameters of their own
	bytes            uint64
	device           int
	parent           *tree // any that has it; nil: it is the outermost
	cuda, read, done bool
}

// parameter is a parameter by its full name.
type parameter struct {
	name, shape string
	storage     uint64 // StorageImpl
}

// run adds a line to the result for each model that is there more than once.
func (f *copyFinder) run() {
	if !f.shapes {
		return
	}
	f.trees = map[uint64]*tree{}
	f.find()
	for _, t := range f.order {
		f.readTree(t, 0)
	}
	whole := map[*tree]uint64{}
	for _, t := range f.order {
		top := t.top()
		whole[top] = max(whole[top], t.bytes)
	}
	order := slices.DeleteFunc(slices.Clone(f.order), func(t *tree) bool {
		return !t.cuda || t.modules < minModules || t.bytes < whole[t.top()]/2
	})
	slices.SortStableFunc(order, func(a, b *tree) int { return int(min(b.bytes, 1<<62)) - int(min(a.bytes, 1<<62)) })
	dicts, told := f.dicts(), map[*tree]bool{}
	for i, first := range order {
		if told[first.top()] || f.py.late() {
			continue
		}
		same := []*tree{first}
		for _, t := range order[i+1:] {
			if t.hash == first.hash && !told[t.top()] && !slices.ContainsFunc(same, func(o *tree) bool { return o.top() == t.top() || o.shares(t) }) {
				same = append(same, t)
			}
		}
		var paths []string
		for _, t := range same {
			paths = append(paths, f.names.holder(t.node).Pattern())
		}
		for _, d := range dicts {
			if f.isStateOf(d, first) {
				paths = append(paths, f.names.holder(d).Pattern())
			}
		}
		if len(paths) < 2 {
			continue
		}
		for _, t := range same {
			told[t.top()] = true
		}
		f.result.Waste = append(f.result.Waste, Waste{
			Kind: WasteCopies, Holder: listed(paths), Device: (&Storage{DeviceType: deviceCUDA, Device: first.device}).DeviceName(), Index: first.device,
			Storages: uint64(len(first.params)), Whole: first.bytes,
		})
	}
}

// listed returns "model, teacher and ema.module".
func listed(paths []string) string {
	slices.Sort(paths[1:])
	paths = slices.Compact(paths)
	last := len(paths) - 1
	if last == 0 { // all have the same pattern
		return paths[0]
	}
	return strings.Join(paths[:last], ", ") + " and " + paths[last]
}

func (t *tree) top() *tree {
	for depth := 0; t.parent != nil && depth < maxModelDepth; depth++ {
		t = t.parent
	}
	return t
}

// shares reports whether two trees have a parameter in common.
func (t *tree) shares(o *tree) bool {
	has := map[uint64]bool{}
	for _, p := range t.params {
		has[p.storage] = true
	}
	return slices.ContainsFunc(o.params, func(p parameter) bool { return has[p.storage] })
}

// find enters the modules that have parameters or modules, in the order in which the search found
// them.
func (f *copyFinder) find() {
	for i := range f.nodes {
		n := &f.nodes[i]
		if n.step != stepModules || n.from < 0 || len(f.trees) >= maxModules {
			continue
		}
		owner := n.from
		if f.nodes[owner].step == stepDict {
			owner = f.nodes[owner].from
		}
		if owner < 0 || f.trees[f.nodes[owner].address] != nil || f.py.late() {
			continue
		}
		t := &tree{node: owner, address: f.nodes[owner].address}
		f.trees[t.address] = t
		f.order = append(f.order, t)
	}
}

// readTree reads the parameters of a module and of those in it.
func (f *copyFinder) readTree(t *tree, depth int) {
	if t.read || depth > maxModelDepth || f.py.late() {
		return
	}
	t.read, t.cuda = true, true
	parameters, modules := f.parts(t.address)
	sum := fnv.New64a()
	add := func(text string) {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(text)))
		sum.Write(n[:])
		sum.Write([]byte(text))
	}
	f.py.eachItem(parameters, func(key, value uint64) {
		p, st := f.parameter(value)
		if st == nil || len(t.params) >= maxModules {
			return
		}
		p.name = f.py.str(key)
		add(p.name)
		add(p.shape)
		t.params = append(t.params, p)
		t.bytes += st.bytes
		t.cuda, t.device = t.cuda && st.deviceType == deviceCUDA, int(st.device)
	})
	if len(t.params) > 0 {
		t.modules = 1
	}
	f.py.eachItem(modules, func(key, value uint64) {
		child := f.trees[value]
		if child == nil || child == t || len(t.params) >= maxModules {
			return
		}
		if f.readTree(child, depth+1); !child.done { // it is among its own parts
			return
		}
		if child.parent == nil && t.top() != child {
			child.parent = t
		}
		name := f.py.str(key)
		add(name)
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], child.hash)
		sum.Write(n[:])
		for _, p := range child.params[:min(len(child.params), maxModules-len(t.params))] {
			p.name = name + "." + p.name
			t.params = append(t.params, p)
		}
		t.bytes, t.modules = t.bytes+child.bytes, t.modules+child.modules
		if len(child.params) > 0 {
			t.cuda, t.device = t.cuda && child.cuda, child.device
		}
	})
	t.hash, t.done, t.cuda = sum.Sum64(), true, t.cuda && len(t.params) > 0
}

// parts returns the dictionaries _parameters and _modules of a module.
func (f *copyFinder) parts(a uint64) (parameters, modules uint64) {
	t := f.py.typeOf(a)
	if t == nil {
		return 0, 0
	}
	visit := func(key, value uint64) {
		switch f.py.str(key) {
		case "_parameters":
			parameters = value
		case "_modules":
			modules = value
		}
	}
	if dict, keys, values := f.py.attributes(a, t); dict != 0 {
		f.py.eachItem(dict, visit)
	} else if keys != 0 {
		f.py.eachKey(keys, values, visit)
	}
	return parameters, modules
}

// parameter reads a tensor's shape and storage; nil if it is no tensor that can be read.
func (f *copyFinder) parameter(a uint64) (p parameter, st *storage) {
	if !f.isTensor(a) {
		return p, nil
	}
	impl := f.py.U64(a + f.storages.torch.impl)
	if !f.cpp.classOf(impl).is(roleTensor) {
		return p, nil
	}
	if p.shape = f.shapeText(impl); p.shape == "" {
		return p, nil
	}
	p.storage = f.py.U64(impl + f.storages.torch.storage)
	return p, f.storages.known[p.storage]
}

// shapeText returns the sizes and the type of a TensorImpl as bytes that are equal for equal
// shapes; "" if it is not read.
func (f *copyFinder) shapeText(impl uint64) string {
	if _, ok := f.shape(impl); !ok {
		return ""
	}
	at := impl + f.storages.torch.object + 8
	dims, sizes := f.py.U64(at), at+8
	if dims > inlineDims {
		sizes = f.py.U64(at + 8)
	}
	text := binary.LittleEndian.AppendUint32(nil, f.py.U32(at+dimsBytes+16)&0xffff)
	for k := range dims {
		text = binary.LittleEndian.AppendUint64(text, f.py.U64(sizes+8*k))
	}
	return string(text)
}

// dicts returns dictionaries that keep storages by name, as the state of a checkpoint does.
func (f *copyFinder) dicts() (list []int32) {
	count := map[int32]int{}
	for _, st := range f.storages.found {
		if st.holder < 0 || f.named(st) == nil {
			continue
		}
		n := &f.nodes[st.holder]
		if n.step != StepKey || n.from < 0 || !peek.Pointer(f.nodes[n.from].address) {
			continue
		}
		if count[n.from]++; count[n.from] == minModules && len(list) < maxModelDicts {
			list = append(list, n.from)
		}
	}
	slices.Sort(list)
	return list
}

// isStateOf reports whether a dictionary has a tensor of its own for each parameter of a model,
// with its name and shape.
func (f *copyFinder) isStateOf(dict int32, t *tree) bool {
	own := map[string]parameter{}
	f.py.eachItem(f.nodes[dict].address, func(key, value uint64) {
		if p, st := f.parameter(value); st != nil && len(own) < maxModules && st.deviceType == deviceCUDA {
			own[f.py.str(key)] = p
		}
	})
	return !slices.ContainsFunc(t.params, func(p parameter) bool {
		x, has := own[p.name]
		return !has || x.shape != p.shape || x.storage == p.storage
	})
}
