// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// TestStacksAreWholeBesideAnotherTracersReturnProbes: a return probe, of whichever tracer, replaces
// a return address on the stack.
func TestStacksAreWholeBesideAnotherTracersReturnProbes(t *testing.T) {
	m := newMachine(t, 1)
	path := m.program("alloc_c")
	empty, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.Kprobe, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Close()
	x, err := link.OpenExecutable(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"op_malloc", "level2"} {
		l, err := x.Uretprobe(name, empty, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	m.trace(nil)
	p := m.script("alloc_c", nil, "free0", "ready", "wait", "repeat 10", "malloc a 1000", "end", "driver_malloc b 10", "print done", "wait")
	p.ready()
	m.snapshot() // its unwind tables are loaded
	p.next()
	p.expect("done")
	s := m.snapshot()
	allocated := map[string]uint64{}
	for _, site := range s.Sites {
		if s.Processes[site.Process].PID != p.pid() {
			continue
		}
		allocated[site.API] += site.AllocObjects
		frames := m.Stack(site.Stack)
		if len(frames) < 5 || frames[len(frames)-1].Function != "_start" {
			t.Errorf("stack %v is not whole", frames)
		}
	}
	if allocated["cudaMalloc"] != 10 || allocated["cuMemAlloc_v2"] != 1 {
		t.Errorf("allocated %v, want 10 of cudaMalloc and 1 of cuMemAlloc_v2", allocated)
	}
	p.end()
}
