// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/torchalloc"
)

// These share a tracer.
func TestTensorsThatAreNotAsUsual(t *testing.T) {
	m := newMachine(t, 2)
	early := m.tensors("2.6", nil, "cpu a 1000", "cpu b 70000", "mapped c 5000", "alloc g 1M", "mark", "ready", "wait",
		"cpu_free a", "cpu d 70000", "mapped e 3000", "mapped_free c", "alloc h 2M", "totals", "wait")
	early.ready()
	m.keepTorch(fakecuda.TorchVersions...)
	m.trace(nil)
	t.Run("on the host", func(t *testing.T) { testHostTensors(t, m.in(t), early) })
	t.Run("not reported", func(t *testing.T) { testUnreportedTensors(t, m.in(t)) })
	t.Run("contradicted", func(t *testing.T) { testContradictions(t, m.in(t)) })
	t.Run("of processes not known yet", func(t *testing.T) { testTensorsOfTheUnknown(t, m.in(t)) })
	t.Run("of processes that end", func(t *testing.T) { testTensorsOfTheDead(t, m.in(t)) })
}

// testHostTensors: of host memory, only shared memory is booked. PyTorch reports the rest while its
// profiler records memory, and nothing afterwards: it would seem to leak.
func testHostTensors(t *testing.T, m *machine, early *program) {
	check := func(what string, p *program, want ledger.Tensors) {
		t.Helper()
		totals := p.totals()
		s := m.snapshot()
		got := tensorsOf(t, s, p.pid())
		host := got[ledger.CPUDevice]
		want.Process, want.Device, want.Sampled = host.Process, ledger.CPUDevice, want.LiveObjects
		want.Peak, want.PeakTime = host.Peak, host.PeakTime
		if !reflect.DeepEqual(host, want) {
			t.Errorf("%s: on the host the books have\n%+v, want\n%+v", what, host, want)
		}
		_, index := processOf(t, s, p.pid())
		onHost := ledger.Tensors{}
		for _, x := range s.Sites {
			if x.Process == index && x.Kind == ledger.Tensor && x.Device == ledger.CPUDevice {
				onHost.LiveBytes += x.LiveBytes
				onHost.LiveObjects += x.LiveObjects
			}
		}
		if onHost.LiveBytes != want.LiveBytes || onHost.LiveObjects != want.LiveObjects {
			t.Errorf("%s: sites on the host have %d/%d, want %d/%d", what, onHost.LiveObjects, onHost.LiveBytes, want.LiveObjects, want.LiveBytes)
		}
		rest := &ledger.Snapshot{Processes: s.Processes}
		for _, x := range s.Tensors {
			if x.Device != ledger.CPUDevice {
				rest.Tensors = append(rest.Tensors, x)
			}
		}
		checkTensors(t, what, rest, p.pid(), totals, false)
		checkParts(t, what, s, p.pid())
		checkNoWarning(t, what, s, p.pid())
	}
	early.next()
	check("before the attach", early, ledger.Tensors{LiveObjects: 1, LiveBytes: 3000, AllocObjects: 1, AllocBytes: 3000})
	early.end()

	for _, version := range reporting {
		if version == "1.6" {
			continue // no totals on the GPU: looked at elsewhere
		}
		p := m.follow(version, nil, "cpu a 1000", "cpu b 1M", "mapped c 5000", "mapped f 6000", "alloc g 1M", "alloc h 30M 1", "totals", "wait",
			"cpu_free a", "mapped_free c", "cpu d 100", "mapped e 9000", "free g", "totals", "wait",
			"cpu_free b", "cpu_free d", "mapped_free e", "totals", "wait")
		check(version+" first", p, ledger.Tensors{LiveObjects: 2, LiveBytes: 11000, AllocObjects: 2, AllocBytes: 11000})
		p.next()
		check(version+" second", p, ledger.Tensors{LiveObjects: 2, LiveBytes: 15000, AllocObjects: 3, AllocBytes: 20000})
		p.next()
		check(version+" third", p, ledger.Tensors{LiveObjects: 1, LiveBytes: 6000, AllocObjects: 3, AllocBytes: 20000})
		p.end()
	}
}

func warningsOf(s *ledger.Snapshot, pid uint32) (list []string) {
	for _, w := range s.Warnings {
		if strings.Contains(w, fmt.Sprintf("process %d", pid)) {
			list = append(list, w)
		}
	}
	return list
}

func checkNoWarning(t *testing.T, what string, s *ledger.Snapshot, pid uint32) {
	t.Helper()
	if list := warningsOf(s, pid); len(list) != 0 {
		t.Errorf("%s: warnings %q", what, list)
	}
}

// testUnreportedTensors: a libc10 that reports under another name, or not at all. Segments are
// booked all the same.
func testUnreportedTensors(t *testing.T, m *machine) {
	for _, version := range []string{"2.99", "none"} {
		for _, segments := range []string{plain, expandable} {
			what := version + ", " + segments
			p := m.follow(version, []string{segments}, "alloc a 3M", "alloc b 50M", "random 3 3000", "free b", "foreign f 1M", "totals", "wait")
			want := p.totals()[0]
			s := m.snapshot()
			if got := tensorsOf(t, s, p.pid()); len(got) != 0 {
				t.Errorf("%s: the books have tensors: %+v", what, got)
			}
			usage := m.usage(p.pid())
			got := booked(t, s, p.pid())
			compareAccounts(t, what, got, accountOf(&usage))
			if sum := got["GPU 0 device"].Bytes + got["GPU 0 vmm"].Bytes; sum != want.Reserved+1<<20 {
				t.Errorf("%s: the books have %d bytes, the allocator and another library %d", what, sum, want.Reserved+1<<20)
			}
			p.end()
		}
	}
	found := map[string]bool{}
	for _, w := range m.snapshot().Warnings {
		if strings.Contains(w, "libc10.so") {
			found[w] = true
		}
	}
	if len(found) != 2 {
		t.Errorf("warnings on two versions of libc10.so that do not report: %v", found)
	}
}

// testContradictions: an allocator that says something else than what it gives out. The warning
// tells both, as they were when it was noticed.
func testContradictions(t *testing.T, m *machine) {
	const live = 100<<20 + 1024
	for lie, said := range map[string]string{
		"-50000000 0":           fmt.Sprint(live - 50_000_000), // less than it gave out
		"50000000 0":            fmt.Sprint(live + 50_000_000), // more, though nothing is older than the attach
		"-1000000000 0":         "",                            // less than nothing
		"4611686018427387904 0": "",                            // more than there can be
	} {
		p := m.follow("2.6", nil, "alloc a 100M", "totals", "wait", "lie "+lie, "alloc b 1000", "totals", "wait", "free b", "alloc c 1000", "totals", "wait")
		p.totals()
		checkNoWarning(t, "before the lie", m.snapshot(), p.pid())
		p.next()
		p.totals()
		m.snapshot()
		p.next()
		p.totals()
		s := m.snapshot()
		list := warningsOf(s, p.pid())
		if len(list) != 1 || !strings.Contains(list[0], said) || !strings.Contains(list[0], fmt.Sprint(live)) {
			t.Errorf("allocated %s more: warnings %q, want one with %s and %d", lie, list, said, live)
		}
		x := tensorsOf(t, s, p.pid())[0]
		if x.LiveBytes != live || x.LiveObjects != 2 {
			t.Errorf("allocated %s more: the books have %+v", lie, x)
		}
		if x.Older > 1<<60 || x.OlderCached > 1<<60 || x.Peak > 1<<60 { // no sum of them overflows
			t.Errorf("allocated %s more: the books have %+v", lie, x)
		}
		p.end()
	}
}

// eachAllocator visits what the kernel half has of allocators.
func (m *machine) eachAllocator(visit func(pid uint32, value *bpf.TensorDevice)) {
	m.t.Helper()
	for _, name := range []string{"tensor_devices", "host_tensor_devices"} {
		var key bpf.TensorKey
		var value bpf.TensorDevice
		for i := m.coll.Maps[name].Iterate(); i.Next(&key, &value); {
			if value.Number != bpf.NoNumber {
				visit(key.Pid, &value)
			}
		}
	}
}

// allocators lists the numbers of those that the kernel half has of a process.
func (m *machine) allocators(pid uint32) (numbers []uint32) {
	m.t.Helper()
	m.eachAllocator(func(of uint32, value *bpf.TensorDevice) {
		if of == pid {
			numbers = append(numbers, value.Number)
		}
	})
	return numbers
}

// within returns a map of the kernel half in a map of maps, or nil.
func (m *machine) within(name string, at uint32) *ebpf.Map {
	m.t.Helper()
	var inner *ebpf.Map
	if err := m.coll.Maps[name].Lookup(at, &inner); err != nil {
		if !errors.Is(err, ebpf.ErrKeyNotExist) {
			m.t.Fatal(err)
		}
		return nil
	}
	m.t.Cleanup(func() { inner.Close() })
	return inner
}

// inKernel counts the blocks that the kernel half has of some allocators.
func (m *machine) inKernel(numbers []uint32) (blocks int) {
	m.t.Helper()
	var key, size uint64
	for i := range m.coll.Maps["blocks"].MaxEntries() {
		if far := m.within("blocks", i); far != nil {
			for i := far.Iterate(); i.Next(&key, &size); {
				if number, _ := bpf.SplitBlockKey(key); slices.Contains(numbers, number) {
					blocks++
				}
			}
		}
	}
	tables := m.within("near_blocks", 0)
	m.eachAllocator(func(_ uint32, value *bpf.TensorDevice) {
		var near bpf.NearBlocks
		if !slices.Contains(numbers, value.Number) || tables.Lookup(value.Number, &near) != nil {
			return
		}
		for _, b := range near.Block {
			if b.Address != 0 && b.Value != 0 {
				blocks++
			}
		}
	})
	return blocks
}

// nobody is a table of processes that knows none.
type nobody struct{}

func (nobody) IsKnown(uint32) bool  { return false }
func (nobody) IsTraced(uint32) bool { return false }
func (nobody) IsBooked(uint32) bool { return false }

// know has the allocators ask a table of processes.
func (m *machine) know(table torchalloc.Processes) {
	tx := m.sequencer.Begin()
	defer tx.Done()
	m.Tracer.tensors.Processes = table
}

// testTensorsOfTheUnknown: the first events of a process are still on their way when the kernel
// half is to forget others.
func testTensorsOfTheUnknown(t *testing.T, m *machine) {
	p := m.follow("2.6", nil, "alloc a 100M", "totals", "wait", "alloc b 1000", "totals", "wait")
	p.totals()
	before := m.allocators(p.pid())
	m.know(nobody{})
	m.Tracer.tensors.Forget()
	m.know(m.table)
	if after := m.allocators(p.pid()); len(before) == 0 || !slices.Equal(before, after) {
		t.Errorf("allocators %v, before %v", after, before)
	}
	p.next()
	p.totals()
	s := m.snapshot()
	checkNoWarning(t, "after others were forgotten", s, p.pid())
	if x := tensorsOf(t, s, p.pid())[0]; x.LiveObjects != 2 || x.Older != 0 {
		t.Errorf("the books have %+v", x)
	}
	p.end()
}

// testTensorsOfTheDead: however a process ends, its books stay as they were, and the kernel half
// forgets it.
func testTensorsOfTheDead(t *testing.T, m *machine) {
	again := m.file("foreign z 1\nforeign_free z\nready\nwait\nalloc b 1000\ntotals\nwait\n")
	alloc := []string{"alloc a 100M", "random 3 3000 2", "mapped b 1000", "totals", "wait"}
	gone := map[uint32][]uint32{} // allocators by pid
	for what, last := range map[string]string{"it is killed": "kill", "it exits": "exit", "it execs": "exec " + again, "a thread execs": "threads 2\nexec " + again + "\nend"} {
		p := m.follow("2.6", nil, append(append([]string{}, alloc...), last)...)
		totals := p.totals()
		numbers := m.allocators(p.pid())
		if blocks := m.inKernel(numbers); len(numbers) != 3 || blocks < 1000 {
			t.Errorf("%s: before it the kernel half has allocators %d, with %d blocks", what, numbers, blocks)
		}
		p.next()
		if strings.Contains(last, "exec") {
			p.ready()
			p.next()
			now := p.totals()
			s := m.snapshot()
			checkTensors(t, what+", afterwards", s, p.pid(), now, false)
			checkOld(t, what, s, p.pid(), totals)
			numbers = append(numbers, m.allocators(p.pid())...)
			p.Process.Kill()
		} else {
			p.Wait()
			m.eventually("the end is noticed", func() bool { x, _ := processOf(t, m.snapshot(), p.pid()); return x.End != 0 })
			checkOld(t, what, m.snapshot(), p.pid(), totals)
		}
		p.Wait()
		gone[p.pid()] = append(gone[p.pid()], numbers...)
		second := m.startWithPID(p.pid(), func() *program {
			return m.tensors("2.6", nil, "foreign z 1", "foreign_free z", "ready", "wait", "alloc b 5000", "totals", "wait")
		})
		second.ready()
		second.next()
		totals = second.totals()
		checkTensors(t, what+", a second process", m.snapshot(), second.pid(), totals, false)
		gone[second.pid()] = append(gone[second.pid()], m.allocators(second.pid())...)
		second.Process.Kill()
		second.Wait()
	}
	for pid, numbers := range gone {
		m.eventually("the kernel half forgets the process", func() bool { return len(m.allocators(pid)) == 0 && m.inKernel(numbers) == 0 })
	}
}

// checkOld wants the ended process with that pid to keep what it had.
func checkOld(t *testing.T, what string, s *ledger.Snapshot, pid uint32, totals map[int32]torchTotals) {
	t.Helper()
	for i, x := range s.Processes {
		if x.PID != pid || x.End == 0 {
			continue
		}
		live := map[int32]uint64{}
		for _, x := range s.Tensors {
			if x.Process == i {
				live[x.Device] = x.LiveBytes
			}
		}
		want := map[int32]uint64{ledger.CPUDevice: 1000}
		for device, x := range totals {
			want[device] = x.Since.Allocated
		}
		if !maps.Equal(live, want) {
			t.Errorf("%s: of the ended process the books have %v, want %v", what, live, want)
		}
		return
	}
	t.Errorf("%s: no process with pid %d has ended", what, pid)
}
