// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// A process that is gone when its name is to be read leaves nothing that would hide the next one with its pid.
func TestThePIDOfANamelessProcessIsFreeForTheNext(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	m := newMachine(t, 1)
	m.trace(nil)
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	pid, own := uint32(cmd.Process.Pid), uint32(os.Getpid())
	m.desk.Take()
	defer m.turn.Done()
	if p := m.process(pid); p != nil || m.nameless != 1 || !m.processes[pid].nameless {
		t.Fatalf("a process that is gone: %+v, %d nameless", p, m.nameless)
	}
	var entry bpf.Process
	if err := m.coll.Maps["processes"].Lookup(pid, &entry); !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Errorf("the kernel half knows it: %+v, %v", entry, err)
	}
	if m.process(pid); m.nameless != 1 {
		t.Errorf("the same process counts as %d nameless ones", m.nameless)
	}
	m.config.Name = regexp.MustCompile(".")
	if err := m.coll.Maps["processes"].Put(own, bpf.Process{Seed: 7}); err != nil {
		t.Fatal(err)
	}
	m.processes[own] = &process{pid: own, nameless: true, seed: 7} // a zombie, as if it had had this process's pid
	if p := m.process(own); p == nil || !p.traced {
		t.Errorf("the next process with its pid is not traced: %+v", p)
	}
	if err := m.coll.Maps["processes"].Lookup(own, &entry); err != nil || entry.Traced == 0 {
		t.Errorf("the kernel half does not trace the next process with its pid: %+v, %v", entry, err)
	}
}

// An entry of the kernel half's that outlived its process does not hide the child of a traced one that has its pid next.
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
