// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"testing"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// TestFloodOfOneProcessLeavesRoomForOthers: each table and ring of the kernel half is made small,
// one process wants more of it than there is, and the figures of one beside it are exact. What the
// former lacks is counted as its own.
func TestFloodOfOneProcessLeavesRoomForOthers(t *testing.T) {
	fakecuda.OnlyFake(t, "NVIDIA's driver makes too few calls for a flood")
	for _, c := range []struct {
		name    string
		entries map[string]uint32
		test    func(*testing.T, *machine)
	}{
		{"events", map[string]uint32{"events": 1 << 16}, testFloodOfEvents},
		{"threads", map[string]uint32{"threads": 64}, testFloodOfThreads},
		{"stacks", map[string]uint32{"stack_events": 1 << 17}, testFloodOfStacks},
		{"captures", nil, testFloodOfCaptures},
		{"contexts", nil, testFloodOfContexts},
		{"blocks", map[string]uint32{"blocks": 8192}, testFloodOfBlocks},
	} {
		t.Run(c.name, func(t *testing.T) {
			var more []string
			if c.name == "contexts" { // each reserves addresses for eight times the memory
				more = []string{"FAKECUDA_MEMORY=1073741824"}
			}
			m := newMachine(t, 1, more...)
			if c.name == "blocks" {
				m.keepTorch("2.6")
			}
			m.trace(func(config *Config) { config.entries, config.Sample = c.entries, 0 })
			c.test(t, m)
		})
	}
}

// losesAlone wants one of two processes to have lost something, and the other nothing.
func (m *machine) losesAlone(flooder, honest *program) {
	m.t.Helper()
	sum := m.losses.stats().Lost // first: the flood goes on
	by, _ := m.shares.Lost()
	if by[flooder.pid()] == 0 || by[honest.pid()] != 0 {
		m.t.Errorf("the flooder lost %d, the other one %d", by[flooder.pid()], by[honest.pid()])
	}
	var of uint64
	for _, n := range by {
		of += n
	}
	if of < sum {
		m.t.Errorf("%d events are lost, of which %d are some process's", sum, of)
	}
}

func allocations(t *testing.T, s *ledger.Snapshot, pid uint32) (objects, live uint64) {
	t.Helper()
	_, index := processOf(t, s, pid)
	for _, x := range s.Sites {
		if x.Process == index {
			objects, live = objects+x.AllocObjects, live+x.LiveObjects
		}
	}
	return objects, live
}

func testFloodOfEvents(t *testing.T, m *machine) {
	const n = 500
	honest := m.script("alloc_c", nil, "malloc k 1", "ready", "wait", fmt.Sprintf("repeat %d", n), "malloc a 4096", "sleep 1", "free a", "end", "print done", "wait")
	flooder := m.script("alloc_c", nil, "malloc k 1", "ready", "wait", "threads 2", "repeat 200000", "malloc a 4096", "free a", "end", "end")
	for _, p := range []*program{honest, flooder} {
		p.ready()
		m.loaded(p.pid())
	}
	flooder.next()
	honest.next()
	honest.expect("done")
	s := m.snapshot()
	if objects, live := allocations(t, s, honest.pid()); objects != n+1 || live != 1 {
		t.Errorf("of the honest process the books have %d allocations, %d live, want %d and 1", objects, live, n+1)
	}
	m.losesAlone(flooder, honest)
	flooder.Process.Kill()
	flooder.Wait()
	m.ended(flooder)
	m.losesAlone(flooder, honest) // also when it is gone
	honest.end()
}

func testFloodOfThreads(t *testing.T, m *machine) {
	flooder := m.script("alloc_c", nil, "malloc k 1", "ready", "wait", "threads 200", "malloc a 4096", "sleep 2000", "end", "print done", "wait")
	honest := m.script("alloc_c", nil, "malloc k 1", "ready", "wait", "threads 8", "malloc a 4096", "sleep 100", "end", "print done", "wait")
	for _, p := range []*program{flooder, honest} {
		p.ready()
		m.loaded(p.pid())
	}
	flooder.next()
	m.eventually("the flooder has what it may have", func() bool {
		by, _ := m.shares.Lost()
		return by[flooder.pid()] > 100
	})
	honest.next()
	honest.expect("done")
	if objects, _ := allocations(t, m.snapshot(), honest.pid()); objects != 9 {
		t.Errorf("of the honest process the books have %d allocations, want 9", objects)
	}
	m.losesAlone(flooder, honest)
	flooder.expect("done")
	flooder.end()
	honest.end()
	m.ended(flooder)
	m.eventually("the threads' room is free", func() bool { return m.shares.Used(0) <= 8 })
}

// testFloodOfStacks: a new stack wakes the reader, which is faster than one process on most
// machines.
func testFloodOfStacks(t *testing.T, m *machine) {
	honest := m.paths(20, "FAKECUDA_LATENCY_US=1000") // as slow as CUDA: at full speed it would be a third flooder
	flooders := []*program{m.paths(1000), m.paths(1000)}
	for _, p := range flooders {
		p.next()
	}
	honest.next()
	for _, p := range append(flooders, honest) {
		if err := p.Wait(); err != nil {
			t.Error(err)
		}
	}
	s := m.snapshot()
	_, index := processOf(t, s, honest.pid())
	for _, x := range s.Sites {
		if x.Process == index && x.Stack != 0 && len(m.Stack(x.Stack)) == 0 {
			t.Errorf("a stack of the honest process is lost")
		}
	}
	_, stacks := m.shares.Lost()
	if stacks[honest.pid()] != 0 {
		t.Errorf("the honest process lost %d stacks", stacks[honest.pid()])
	}
	t.Logf("stacks lost: %v", stacks)
}

func testFloodOfCaptures(t *testing.T, m *machine) {
	const streams, share, first = 5000, 256, 1 << 20
	captured := func(p *program, stream uint64) (n uint64) {
		_ = m.coll.Maps["captures"].Lookup(bpf.StreamKey{Stream: stream, Pid: uint64(p.pid())}, &n)
		return n
	}
	honest := m.script("calls_c", nil, "cudaMalloc p 1", "cudaStreamBeginCapture 4096", "ready", "wait")
	lines := []string{"cudaMalloc p 1", "ready", "wait"}
	for i := range streams {
		lines = append(lines, fmt.Sprintf("cudaStreamBeginCapture %d", first+i))
	}
	flooder := m.script("calls_c", nil, append(lines, "print done", "wait")...)
	honest.ready()
	flooder.ready()
	flooder.next()
	flooder.expect("done")
	m.snapshot()
	if captured(honest, 4096) != 1 || captured(flooder, 0) != share {
		t.Errorf("%d streams of the honest process are captured, %d of the flooder, want 1 and %d", captured(honest, 4096), captured(flooder, 0), share)
	}
	m.losesAlone(flooder, honest)
	flooder.end()
	honest.end()
}

// testFloodOfContexts: what a process lacks of its share, it gets when it destroys others.
func testFloodOfContexts(t *testing.T, m *machine) {
	const contexts, share, destroyed = 1100, 1024, 10
	noted := func(p *program) (n int) {
		var key bpf.ContextKey
		var device uint32
		for all := m.coll.Maps["contexts"].Iterate(); all.Next(&key, &device); {
			if key.Pid == uint64(p.pid()) {
				n++
			}
		}
		return n
	}
	honest := m.script("calls_c", nil, "cuInit", "cuCtxCreate_v2 c 0", "ready", "wait", "cuMemAlloc_v2 p 4096", "print done", "wait")
	lines := []string{"cuInit", "ready", "wait"}
	create := func(name string) { lines = append(lines, "cuCtxCreate_v2 "+name+" 0", "cuCtxPopCurrent_v2 popped") }
	for i := range contexts {
		create(fmt.Sprint("c", min(i, destroyed)))
	}
	lines = append(lines, "print done", "wait")
	for i := range destroyed {
		lines = append(lines, fmt.Sprint("cuCtxDestroy_v2 c", i))
		create("c")
	}
	flooder := m.script("calls_c", nil, append(lines, "print done", "wait")...)
	for _, p := range []*program{honest, flooder} {
		p.ready()
		m.loaded(p.pid())
	}
	flooder.next()
	flooder.expect("done")
	honest.next()
	honest.expect("done")
	m.losesAlone(flooder, honest)
	lost, _ := m.shares.Lost()
	if n := noted(flooder); n != share || lost[flooder.pid()] != contexts-share {
		t.Errorf("%d contexts of the flooder are noted, %d counted as lost, want %d and %d", n, lost[flooder.pid()], share, contexts-share)
	}
	flooder.next()
	flooder.expect("done")
	if more, _ := m.shares.Lost(); noted(flooder) != share || more[flooder.pid()] != lost[flooder.pid()] {
		t.Errorf("after %d were destroyed, and as many created, %d are noted and %d more lost", destroyed, noted(flooder), more[flooder.pid()]-lost[flooder.pid()])
	}
	flooder.end()
	honest.end()
}

func testFloodOfBlocks(t *testing.T, m *machine) {
	flooder := m.follow("2.6", nil, "live 100000 512", "totals", "wait")
	flooder.totals()
	honest := m.follow("2.6", nil, "live 3500 512", "totals", "wait")
	totals := honest.totals()
	s := m.snapshot()
	checkTensors(t, "beside a flood", s, honest.pid(), totals, false)
	m.losesAlone(flooder, honest)
	m.said(s, "has more live tensors on cuda:0 than can be followed")
	for _, p := range []*program{flooder, honest} {
		p.end()
	}
	m.eventually("the blocks' room is free", func() bool { return m.shares.Used(1) == 0 })
}
