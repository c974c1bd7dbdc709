// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/probepoint"
)

// A wrapper is a runtime function that calls the driver function that reports the same: cudaMalloc
// calls cuMemAlloc_v2. Both are probed at first. Once enoughCalls of a wrapper had their driver
// call inside, and none had not, its probes are detached: the stack of the driver call names the
// wrapper. They come back for a look after Pace.Look. A wrapper with a call of its own keeps them,
// and so do all wrappers of a library from which the driver is called by code in which no wrapper
// is found.
const enoughCalls = 16

// Pace is how often wrappers are reviewed, and how long their probes stay detached. It is a
// parameter for tests.
type Pace struct{ Review, Look time.Duration }

// DefaultPace takes up to five minutes to notice that a wrapper no longer calls the driver.
var DefaultPace = Pace{Review: time.Second, Look: 5 * time.Minute}

// wrapper is a wrapper in one file. Files owns it.
type wrapper struct {
	number         uint32 // in wrapperTable
	at             probepoint.Function
	program        *ebpf.Program
	cookie         uint64
	entered, exits link.Link // its probes; nil while detached
	stage          wrapperStage
	since          time.Time
	seen           wrapperCalls // when its probes were attached
}

type wrapperStage uint8

const (
	stageProbed   wrapperStage = iota
	stageDetached              // from both probes
	stageKept                  // it reports what the driver does not
)

// wrapperCalls are calls that succeeded, with the driver call inside and without.
type wrapperCalls struct{ inside, alone uint64 }

// wrapperTable is the kernel half's table of wrappers, the user space half of bpf/wrappers.h. Only
// the goroutine that owns Files may use it, and an attach that came too late: see patiently.
type wrapperTable struct {
	mu     sync.Mutex // guards free and next
	memory []byte
	rows   []bpf.Wrapper
	free   []uint32
	next   uint32
}

func newWrapperTable(table *ebpf.Map) (*wrapperTable, error) {
	rows := table.MaxEntries()
	memory, err := unix.Mmap(table.FD(), 0, int(rows)*int(unsafe.Sizeof(bpf.Wrapper{})), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the table of wrappers: %w", err)
	}
	return &wrapperTable{memory: memory, rows: unsafe.Slice((*bpf.Wrapper)(unsafe.Pointer(&memory[0])), rows), next: 1}, nil
}

// take returns a free number; 0: none is free.
func (t *wrapperTable) take() uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.free); n > 0 {
		number := t.free[n-1]
		t.free = t.free[:n-1]
		return number
	}
	if t.next >= uint32(len(t.rows)) {
		return 0
	}
	t.next++
	return t.next - 1
}

// give takes a number back. Calls that are open under it count as ended.
func (t *wrapperTable) give(number uint32) {
	if number == 0 {
		return
	}
	t.retire(number)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free = append(t.free, number)
}

// retire tells the kernel half that it will not see the returns of open calls.
func (t *wrapperTable) retire(number uint32) {
	atomic.StoreUint64(&t.rows[number].Retired, clock.Now())
}

func (t *wrapperTable) calls(number uint32) wrapperCalls {
	row := &t.rows[number]
	return wrapperCalls{atomic.LoadUint64(&row.Inside), atomic.LoadUint64(&row.Alone)}
}

func (t *wrapperTable) close() {
	if t != nil && t.memory != nil {
		_ = unix.Munmap(t.memory)
		t.memory, t.rows = nil, nil
	}
}

// function returns the wrapper's row in the probe table.
func (w *wrapper) function() uint64 { return w.cookie & (1<<bpf.WrapperShift - 1) }

// detach detaches the probes of w. Calls that are open count as ended before the first of their
// returns is missed: until then, a driver call of the thread's next call would seem to be inside.
func (w *wrapper) detach(table *wrapperTable) {
	if w.entered == nil {
		return
	}
	w.entered.Close()
	table.retire(w.number)
	w.exits.Close()
	w.entered, w.exits = nil, nil
}
