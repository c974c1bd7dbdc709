// SPDX-License-Identifier: Apache-2.0

package processes

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// kernel is a list of processes as the kernel half has it.
type kernel map[uint32]bpf.Process

func (k kernel) Lookup(key, value any) error {
	entry, ok := k[key.(uint32)]
	if !ok {
		return ebpf.ErrKeyNotExist
	}
	*value.(*bpf.Process) = entry
	return nil
}

func (k kernel) Put(key, value any) error {
	if len(k) >= 4 {
		return errors.New("no room")
	}
	k[key.(uint32)] = value.(bpf.Process)
	return nil
}

func (k kernel) Delete(key any) error {
	delete(k, key.(uint32))
	return nil
}

// told keeps what the books were told, in words.
type told []string

func (j *told) Apply(e *ledger.Event) { *j = append(*j, fmt.Sprint("op ", e.Op, " of ", e.PID)) }

func (j *told) Tell(in ledger.Input) {
	switch in := in.(type) {
	case ledger.Process:
		*j = append(*j, fmt.Sprint("process ", in.PID))
	case ledger.Warning:
		*j = append(*j, in.Text)
	}
}

// newTable returns a Table, what the kernel half has, what the books are told, and what was asked
// of the worker.
func newTable(o Options) (*Table, kernel, *told, *told) {
	list, books, asked := kernel{}, &told{}, &told{}
	o.Kernel = list
	o.Adopt = func(pid, layout uint32) bool { return layout == 3 }
	o.Scan = func(pid uint32) { *asked = append(*asked, fmt.Sprint("scan ", pid)) }
	o.Introduce = func(pid uint32) { *asked = append(*asked, fmt.Sprint("introduce ", pid)) }
	return NewTable(o), list, books, asked
}

// dead returns the pid of a process that has ended.
func dead(t *testing.T) uint32 {
	t.Helper()
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return uint32(cmd.Process.Pid)
}

var own = uint32(os.Getpid())

// A process that is gone when its name is to be read leaves nothing that would hide the next one
// with its pid.
func TestThePIDOfANamelessProcessIsFreeForTheNext(t *testing.T) {
	table, list, books, _ := newTable(Options{Name: regexp.MustCompile("no program has this name")})
	pid := dead(t)
	for range 2 {
		if p := table.Find(books, pid); p != nil || table.nameless != 1 || !table.processes[pid].nameless {
			t.Fatalf("a process that is gone: %+v, %d nameless", p, table.nameless)
		}
	}
	if entry, ok := list[pid]; ok {
		t.Errorf("the kernel half knows it: %+v", entry)
	}
	table.CountNameless(pid)
	table.WarnOfNameless(books)
	if want := "processes that ended before their names could be read, and are left out: 1, with 1 allocations and frees"; !slices.Contains(*books, want) {
		t.Errorf("the books were told %q", *books)
	}
	table.Name = regexp.MustCompile(".")
	list[own] = bpf.Process{Seed: 7}
	table.processes[own] = &Process{table: table, pid: own, nameless: true, seed: 7} // a zombie, as if it had had this process's pid
	if p := table.Find(books, own); p == nil || !p.traced {
		t.Errorf("the next process with its pid is not traced: %+v", p)
	}
	if list[own].Traced == 0 {
		t.Errorf("the kernel half does not trace the next process with its pid: %+v", list[own])
	}
}

// A process that the reaper ended too early would be unknown to its last events.
func TestMissingProcessesEndWhenTheirEventsHaveBeenRead(t *testing.T) {
	table, _, books, _ := newTable(Options{})
	reaper := NewReaper(table)
	gone := dead(t)
	table.Find(books, gone)
	table.Find(books, own)
	for i, want := range [][]uint32{nil, nil, nil, {gone}} {
		if got := reaper.Gone(); !slices.Equal(got, want) {
			t.Errorf("after %d times that the ring was empty: gone %v, want %v", reaper.Emptied(), got, want)
		}
		if i > 0 { // the second look comes before anything was read
			reaper.RingWasEmpty()
		}
	}
}

func TestAProcessIsBookedOnceUntilItEnds(t *testing.T) {
	table, list, books, asked := newTable(Options{})
	for range 3 {
		if p := table.Find(books, own); p == nil || p.User() != uint32(os.Getuid())+1 {
			t.Fatalf("found %+v", p)
		}
	}
	if got, want := strings.Join(append(*books, *asked...), ", "), fmt.Sprintf("process %d, scan %[1]d, introduce %[1]d", own); got != want {
		t.Errorf("told and asked %q, want %q", got, want)
	}
	p := table.get(own)
	first, here := p.Allocates(0)
	again, there := p.Allocates(1)
	_, hereAgain := p.Allocates(0)
	if !first || !here || again || !there || hereAgain || !table.HasAllocated(own) {
		t.Error("its first allocation is not its first")
	}
	p.Changes(5)
	p.Changes(4) // the destruction of an event, entered before
	if at, known := table.Changed(own); at != 5 || !known {
		t.Errorf("it changed at %d", at)
	}
	table.Release(own)
	table.Exit(books, &bpf.Event{Pid: own, Tid: own})
	if len(list) > 0 || table.Len() > 0 || table.AnyTraced() || len(*books) != 2 {
		t.Errorf("after its end: %v in the kernel's list, told %q", list, *books)
	}
	if table.Found(books, own) || table.IsKnown(own) {
		t.Error("a scan from before its end brings it back")
	}
}

func TestAnExecBeginsAProcessAnew(t *testing.T) {
	table, list, books, _ := newTable(Options{PIDs: []uint32{own}})
	table.Expect(books)
	if table.UsesCUDA(own) || !table.Found(books, own) || !slices.Equal(table.Traced(), []uint32{own}) {
		t.Fatal("what was asked for is not traced from its first library on")
	}
	if first, changed := table.TablesLoaded(books, own, 9, true, time.Hour); !first || !changed || table.IsUnloaded(own) || list[own].Layout != 9 || list[own].Jit == 0 {
		t.Errorf("with tables the kernel half has %+v", list[own])
	}
	if first, changed := table.TablesLoaded(books, own, 9, true, time.Hour); first || changed {
		t.Errorf("a second load of the same tables: the first one %v, changed %v", first, changed)
	}
	if wait, traced := table.NextLoad(own); !traced || wait <= 0 || wait > loadInterval {
		t.Errorf("the next load waits for %v", wait)
	}
	seed := list[own].Seed
	table.Exec(books, &bpf.Event{Pid: own, Tid: own})
	if !table.IsTraced(own) || table.IsBooked(own) || !table.IsUnloaded(own) || list[own].Layout != 0 || list[own].Seed == seed {
		t.Errorf("after execve the kernel half has %+v", list[own])
	}
}

func TestAChildIsKnownFromTheKernelHalf(t *testing.T) {
	table, list, books, _ := newTable(Options{Command: true})
	table.Start(books, 1<<30)
	list[own] = bpf.Process{Seed: 7, Layout: 3, Traced: 1, Held: 1, Inherited: 1}
	if p := table.Find(books, own); p == nil || p.HasNoTables() || table.IsUnloaded(own) || !table.IsHeld(own) {
		t.Errorf("the child is %+v", p)
	}
	if list[own].Inherited != 0 || list[own].Layout != 3 || list[own].Seed != 7 {
		t.Errorf("the kernel half has %+v", list[own])
	}
	if p := table.Find(books, dead(t)); p != nil {
		t.Errorf("another process is traced: %+v", p)
	}
}

func TestAProcessWithoutRoomInTheKernelsListIsWarnedOf(t *testing.T) {
	table, list, books, _ := newTable(Options{})
	for pid := range uint32(4) {
		list[1<<30+pid] = bpf.Process{}
	}
	table.Find(books, own)
	if want := fmt.Sprintf("process %d is not followed: no room", own); !slices.Contains(*books, want) {
		t.Errorf("the books were told %q", *books)
	}
}

func TestAProcessThatRenamesItselfIsTraced(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	pid := uint32(cmd.Process.Pid)
	table, list, books, asked := newTable(Options{Name: regexp.MustCompile("(?m)^sleep$")})
	table.Name = regexp.MustCompile("(?m)^engine$")
	names := NewNames(table, nil, nil)
	if table.Wants(books, pid) || list[pid].Traced != 0 {
		t.Fatal("a process with another name is traced")
	}
	others := names.next(10)
	if len(others) != 1 || others[0].PID != pid || names.matches(others[0]) {
		t.Fatalf("others %+v", others)
	}
	if text := names.Warning(); !strings.Contains(text, fmt.Sprintf("one with another name uses CUDA: sleep [%d]", pid)) {
		t.Errorf("warning %q", text)
	}
	table.Name = regexp.MustCompile("(?m)^sleep$") // for a process that renames itself
	if !names.matches(others[0]) {
		t.Error("the new name does not match")
	}
	names.trace(books, others[0])
	if !table.Wants(books, pid) || list[pid].Traced != 1 || !slices.Contains(*asked, fmt.Sprint("scan ", pid)) || len(*books) != 1 {
		t.Errorf("kernel %+v, asked %q, told %q", list[pid], *asked, *books)
	}
	if text := names.Warning(); text != "" || len(names.next(10)) != 0 {
		t.Errorf("afterwards: %q", text)
	}
	// Another process has another name still; the one that matched ends.
	other := exec.Command("sleep", "1000")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer other.Wait()
	defer other.Process.Kill()
	table.Name = regexp.MustCompile("(?m)^engine$")
	if table.Wants(books, uint32(other.Process.Pid)) {
		t.Fatal("a process with another name is traced")
	}
	table.Exit(books, &bpf.Event{Pid: pid, Tid: pid})
	if text := names.Warning(); text != "" {
		t.Errorf("after the end of the process that matched: %q", text)
	}
}

func TestOthersAreLookedAtInTurns(t *testing.T) {
	table, _, _, _ := newTable(Options{Name: regexp.MustCompile("(?m)^engine$")})
	for pid := uint32(1); pid <= 5; pid++ {
		table.enter(&Process{table: table, pid: pid, start: 1, traced: pid == 2})
	}
	names := NewNames(table, nil, nil)
	var pids []uint32
	for range 3 {
		for _, x := range names.next(2) {
			pids = append(pids, x.PID)
		}
	}
	if want := []uint32{1, 3, 4, 5, 1, 3}; !slices.Equal(pids, want) {
		t.Errorf("looked at %v, want %v", pids, want)
	}
	// A warning names each that stalls once, and forgets those that have ended.
	if !names.toWarnOf(Other{3, 1}) || names.toWarnOf(Other{3, 1}) || !names.toWarnOf(Other{9, 1}) || !names.toWarnOf(Other{9, 1}) {
		t.Error("warned twice, or not")
	}
}
