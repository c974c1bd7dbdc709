// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// stacksOf counts the allocations of a process and its children, but not of the process, whose
// stacks are whole, end early, and are missing.
func (m *machine) stacksOf(s *ledger.Snapshot, pids map[uint32]bool) (whole, truncated, missing uint64) {
	for _, x := range s.Sites {
		if !pids[s.Processes[x.Process].PID] {
			continue
		}
		frames := m.Stack(x.Stack)
		switch n := x.AllocObjects; {
		case len(frames) == 0:
			missing += n
		case frames[len(frames)-1].Mark:
			truncated += n
		default:
			whole += n
		}
	}
	return whole, truncated, missing
}

// TestForkedProcessesHaveTheirParentsTablesAtOnce: children that allocate as soon as they are
// forked and are gone a millisecond later have whole stacks, whether all processes are traced or
// some by name.
func TestForkedProcessesHaveTheirParentsTablesAtOnce(t *testing.T) {
	fakecuda.OnlyFake(t, "NVIDIA's driver cannot be used in a forked child")
	for _, everyone := range []bool{false, true} {
		t.Run(fmt.Sprintf("everyone=%v", everyone), func(t *testing.T) {
			m := newMachine(t, 1)
			p := m.start(nil, m.program("storm_c"), "forks", "300", "8")
			p.ready()
			m.trace(func(c *Config) {
				if everyone {
					c.Name = nil
				}
			})
			p.next()
			p.expect("done")
			s := m.snapshot()
			// Of one that was gone when its name was to be read there is none.
			own := s.Processes[slices.IndexFunc(s.Processes, func(x ledger.Process) bool { return x.PID == p.pid() })].Comm
			children := map[uint32]bool{}
			for _, x := range s.Processes {
				if x.PID != p.pid() && (x.Comm == own || x.Comm == "") {
					children[x.PID] = true
				}
			}
			whole, truncated, missing := m.stacksOf(s, children)
			t.Logf("%d children, %d whole stacks, %d truncated, %d missing; %+v", len(children), whole, truncated, missing, s.Stats)
			// A page of a stack can be out of memory for a moment: counted as truncated.
			const paged = 2
			if len(children) != 300 || whole+truncated != 600 || truncated > paged || missing > 0 {
				t.Errorf("%d children have %d whole stacks, %d truncated and %d missing, want two whole ones of 300 each", len(children), whole, truncated, missing)
			}
			p.end()
		})
	}
}

// TestProgramsThatHaveJustBegunHaveWholeStacks: they allocate before anybody can have looked at
// them, but their libraries are known.
func TestProgramsThatHaveJustBegunHaveWholeStacks(t *testing.T) {
	fakecuda.OnlyFake(t, "the simulated driver takes too long to begin")
	m := newMachine(t, 1)
	kernel, err := bpf.KernelTypes(btf.NewCache())
	if err != nil {
		t.Fatal(err)
	}
	if !bpf.CanGuard(kernel) {
		t.Skip("the kernel half looks into processes from Linux 6.10 on only")
	}
	p := m.start(nil, m.program("storm_c"), "execs", "100", "4")
	p.ready()
	m.trace(func(c *Config) { c.Name = nil })
	p.next()
	p.expect("done")
	s := m.snapshot()
	program := s.Processes[slices.IndexFunc(s.Processes, func(x ledger.Process) bool { return x.PID == p.pid() })].Comm
	children := map[uint32]bool{}
	for _, x := range s.Processes {
		if x.PID != p.pid() && (x.Comm == program || x.Comm == "") {
			children[x.PID] = true
		}
	}
	whole, truncated, missing := m.stacksOf(s, children)
	t.Logf("%d children, %d whole stacks, %d truncated, %d missing; %+v", len(children), whole, truncated, missing, s.Stats)
	for _, x := range s.Sites {
		if frames := m.Stack(x.Stack); children[s.Processes[x.Process].PID] && (len(frames) == 0 || frames[len(frames)-1].Mark) {
			t.Logf("%+v", frames)
		}
	}
	if whole < 190 || truncated+missing > whole/50 {
		t.Errorf("%d children have %d whole stacks, %d truncated and %d missing, want two whole ones of 100 each", len(children), whole, truncated, missing)
	}
	p.end()
}
