// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// loaders is how many allocators a job of 8 ranks has whose data loaders have 62 workers each: one
// on the host for each, two for each rank.
const loaders = 8 * (62 + 2)

// withWorkers starts a process whose workers wait to end.
func (m *machine) withWorkers() *program {
	m.t.Helper()
	p := m.follow("2.6", nil, fmt.Sprintf("workers %d 4096", loaders), "wait", "workers_end", "wait")
	p.expect(fmt.Sprintf("workers %d", loaders))
	m.eventually("the workers' tensors are in the books", func() bool {
		n := 0
		for _, x := range m.snapshot().Tensors {
			if x.Device == ledger.CPUDevice && x.LiveBytes == 4096 {
				n++
			}
		}
		return n == loaders
	})
	return p
}

// TestGPUHasTensorsBesideHundredsOfWorkers: their allocators on the host take no room from one on a
// GPU, and where all end together the reader goes on, and loses nothing of a job with 50,000 events
// a second.
func TestGPUHasTensorsBesideHundredsOfWorkers(t *testing.T) {
	m := newMachine(t, 1)
	m.keepTorch("2.6")
	m.trace(func(c *Config) { c.Sample = 0 })
	workers := m.withWorkers()
	p := m.follow("2.6", nil, "alloc a 1M", "totals", "wait", "print go", "rate 2 3 50000", "totals", "wait")
	told := p.totals()
	checkTensors(t, "beside workers", m.snapshot(), p.pid(), told, false)
	p.next()
	p.expect("go")
	time.Sleep(500 * time.Millisecond)
	stop := make(chan struct{})
	longest := make(chan time.Duration)
	go func() {
		var most time.Duration
		for {
			select {
			case <-stop:
				longest <- most
				return
			case <-time.After(time.Millisecond):
				begin := time.Now()
				tx := m.sequencer.Begin()
				most = max(most, time.Since(begin))
				tx.Done()
			}
		}
	}()
	begin := time.Now()
	workers.next()
	workers.expect("workers 0")
	m.eventually("the ends of all workers are noticed", func() bool {
		return m.table.Len() < loaders
	})
	took := time.Since(begin)
	close(stop)
	held := <-longest
	t.Logf("%d workers ended and were noticed in %v; the books were held for %v at most", loaders, took, held)
	if held > time.Second {
		t.Errorf("the books were held for %v", held)
	}
	events, _ := p.rate()
	totals := p.totals()
	s := m.snapshot()
	checkTensors(t, "when the workers have ended", s, p.pid(), totals, false)
	checkLosses(t, s)
	if x := tensorsOf(t, s, p.pid())[0]; x.AllocObjects != events/2+1 {
		t.Errorf("the books have %d allocations, the program %d", x.AllocObjects, events/2+1)
	}
	m.eventually("the kernel half forgets the workers", func() bool {
		n := 0
		key, value := make([]byte, 8), make([]byte, m.coll.Maps["host_tensor_devices"].ValueSize())
		for i := m.coll.Maps["host_tensor_devices"].Iterate(); i.Next(&key, &value); n++ {
		}
		return n == 0 && m.Tracer.tensors.Left() == 0
	})
	p.end()
	workers.end()
}

// TestAllocatorsNumbersAreGivenBack: blocks are known by the number of their allocator, which no
// two have at a time, however many CPUs there are. With six numbers twenty allocators that come one
// after the other have one each.
func TestAllocatorsNumbersAreGivenBack(t *testing.T) {
	m := newMachine(t, 1)
	m.keepTorch("2.6")
	m.trace(func(c *Config) { c.Sample, c.entries = 0, map[string]uint32{"gpu_numbers": 6, "host_numbers": 6} })
	stays := m.follow("2.6", nil, "alloc a 1M", "mapped b 1000", "totals", "wait", "totals", "wait")
	check := func(what string, p *program, count uint64) {
		p.totals()
		s := m.snapshot()
		checkLosses(t, s)
		x := tensorsOf(t, s, p.pid())
		if x[0].LiveObjects != count || x[ledger.CPUDevice].LiveBytes != 1000 {
			t.Errorf("%s: the books have %+v", what, x)
		}
	}
	check("the one that stays", stays, 1)
	for i := range 20 {
		p := m.follow("2.6", nil, "live 5000 512", "mapped b 1000", "totals", "wait")
		check(fmt.Sprintf("number %d", i), p, 5000)
		numbers := append(m.allocators(stays.pid()), m.allocators(p.pid())...)
		slices.Sort(numbers)
		if len(slices.Compact(numbers)) != 4 {
			t.Errorf("two processes' allocators have numbers %v, want four", numbers)
		}
		p.end()
		m.eventually("its numbers are free", func() bool { return len(m.allocators(p.pid())) == 0 })
	}
	stays.next()
	check("the one that stays, afterwards", stays, 1)
	stays.end()
}
