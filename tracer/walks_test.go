// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf/btf"

	"github.com/vramprof/vramprof/bpf"
)

// A frame pointer's register that holds anything must not make every walk a new one.
func TestAWalkIsRememberedWhateverTheFramePointerHolds(t *testing.T) {
	m := newMachine(t, 1)
	name := m.program("register_c")
	m.trace(nil)
	const calls = 2000
	p := m.start(nil, name, "2000")
	p.ready()
	m.snapshot()
	p.next()
	p.expect("done")
	s := m.snapshot()
	walks := 0
	var key uint64
	var walk []byte
	for i := m.coll.Maps["walks"].Iterate(); i.Next(&key, &walk); {
		walks++
	}
	if walks == 0 || walks > 20 {
		t.Errorf("%d walks are remembered after %d calls from one place", walks, calls)
	}
	for i := range s.Sites {
		x := &s.Sites[i]
		if s.Processes[x.Process].PID != p.pid() || x.AllocObjects < calls/2 {
			continue
		}
		var names []string
		for _, f := range m.Stack(x.Stack) {
			names = append(names, f.Function)
		}
		if len(names) < 4 || names[1] != "allocate" || names[2] != "keep" || names[3] != "main" {
			t.Errorf("the stack is %q", names)
		}
		checkLosses(t, s)
		p.end()
		return
	}
	t.Error("no site has the calls")
}

// TestStacksThatEndAtUnmappedMemory: a comparison reads at once what earlier ones from the same
// registers needed. Where that is not mapped, the stack must still be right and the walk
// remembered.
func TestStacksThatEndAtUnmappedMemory(t *testing.T) {
	m := newMachine(t, 1)
	name := m.program("borders_c")
	m.trace(func(c *Config) { c.pace.Review = time.Hour }) // all walks begin in the runtime
	const calls = 500
	p := m.start(nil, name, "500")
	p.ready()
	m.snapshot()
	p.next()
	p.expect("done")
	s := m.snapshot()
	found := map[string]uint64{}
	for i := range s.Sites {
		x := &s.Sites[i]
		if s.Processes[x.Process].PID != p.pid() {
			continue
		}
		var names []string
		for _, f := range m.Stack(x.Stack) {
			names = append(names, f.Function)
		}
		if len(names) < 3 || names[1] != "allocate" {
			t.Errorf("%d calls have the stack %q", x.AllocObjects, names)
			continue
		}
		found[names[2]] += x.AllocObjects
	}
	if len(found) != 2 || found["deep"] != calls || found["shallow"] != calls {
		t.Errorf("calls by function are %v, want %d of deep and of shallow", found, calls)
	}
	if sizes := m.stackSizes(); len(sizes) != 2 || slices.Min(sizes) != 0 || slices.Max(sizes) < 8 {
		t.Errorf("comparisons from %d remembered walks read %d bytes at once, want two walks, compared from the first on", len(sizes), sizes)
	}
	checkLosses(t, s)
	p.end()
}

// stackSizes returns how many bytes of the stack comparisons that begin with each remembered walk
// read at once.
func (m *machine) stackSizes() (sizes []uint64) {
	m.t.Helper()
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		m.t.Fatal(err)
	}
	spec, err := bpf.LoadProbes(kernel)
	if err != nil {
		m.t.Fatal(err)
	}
	members := spec.Maps["walks"].Value.(*btf.Struct).Members
	i := slices.IndexFunc(members, func(x btf.Member) bool { return x.Name == "stack_size" })
	var key uint64
	var walk []byte
	for all := m.coll.Maps["walks"].Iterate(); all.Next(&key, &walk); {
		sizes = append(sizes, binary.NativeEndian.Uint64(walk[members[i].Offset.Bytes():]))
	}
	return sizes
}
