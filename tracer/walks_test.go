// SPDX-License-Identifier: Apache-2.0

package tracer

import "testing"

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
