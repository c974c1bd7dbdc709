// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"os/exec"
	"testing"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// An entry of the kernel half's that outlived its process does not hide the child of a traced one
// that has its pid next.
func TestAChildIsTracedWhateverHadItsPIDBefore(t *testing.T) {
	const children = 5
	m := newMachine(t, 1)
	m.trace(nil)
	p := m.start(nil, m.program("storm_c"), "forks", fmt.Sprint(children), "1")
	p.ready()
	m.eventually("it is traced", func() bool {
		var entry bpf.Process
		return m.coll.Maps["processes"].Lookup(p.pid(), &entry) == nil && entry.Traced != 0
	})
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	for pid := uint32(cmd.Process.Pid) + 1; pid < uint32(cmd.Process.Pid)+1000; pid++ {
		if !procfs.Exists(pid) {
			if err := m.coll.Maps["processes"].Put(pid, bpf.Process{Seed: 1}); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.next()
	p.expect("done")
	var booked uint64
	for _, x := range m.snapshot().Processes {
		for _, total := range x.Totals {
			if x.PID != p.pid() && total.AllocObjects == 2 {
				booked++
			}
		}
	}
	if booked != children {
		t.Errorf("%d of %d children are booked", booked, children)
	}
}
