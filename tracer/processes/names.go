// SPDX-License-Identifier: Apache-2.0

package processes

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/panics"
	"github.com/vramprof/vramprof/tracer/procfs"
	"github.com/vramprof/vramprof/tracer/sequence"
)

// Each second so many processes are looked at that Name leaves out: 10 µs each. One that stalls its
// readers is left alone for pauses, see procfs.Call.
const renamedLooks = 100

// Other is a process that uses CUDA and whose names do not match Name.
type Other struct {
	PID   uint32
	start uint64
}

// Names looks for processes that rename themselves while they run (setproctitle, Ray, vLLM), which
// no event tells, and has those traced whose name matches by now.
type Names struct {
	table     *Table
	sequencer *sequence.Sequencer
	defects   *panics.List

	mu     sync.Mutex     // guards what follows; comes before Table.mu
	turn   uint32         // pid of the last process that next returned
	warned map[Other]bool // those that a warning names
}

// NewNames returns the Names of a Table.
func NewNames(t *Table, s *sequence.Sequencer, defects *panics.List) *Names {
	return &Names{table: t, sequencer: s, defects: defects, warned: map[Other]bool{}}
}

// Run looks at names once per second until ctx ends, if there is a Name to match. It needs a
// goroutine of its own: a process can delay who reads its arguments.
func (n *Names) Run(ctx context.Context) {
	if n.table.Name == nil {
		return
	}
	clock.Every(ctx, time.Second, func() {
		for _, x := range n.next(renamedLooks) {
			n.look(x)
		}
	})
}

func (n *Names) look(x Other) {
	defer n.defects.Recovered("a look at processes")
	if n.matches(x) {
		tx := n.sequencer.Begin()
		defer tx.Done()
		n.trace(tx, x)
	} else if procfs.StallsAgain(x.PID) && n.toWarnOf(x) { // on a busy machine, any process may stall one read
		n.sequencer.Tell(ledger.Warning{PID: x.PID, Text: fmt.Sprintf("process %d stalls reads of its arguments: while it does, a name that it takes is not seen", x.PID)})
	}
}

// next returns at most so many other processes; the next call goes on with those behind.
func (n *Names) next(most int) []Other {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := n.table.others()
	from := slices.IndexFunc(list, func(x Other) bool { return x.PID > n.turn })
	from = max(from, 0) // after the last one, the first
	list = append(list[from:], list[:from]...)
	if list = list[:min(most, len(list))]; len(list) > 0 {
		n.turn = list[len(list)-1].PID
	}
	return list
}

// matches reports whether a process has a name by now that matches. It reads /proc/PID, for up to
// 0.5 s: not for a goroutine that has the transaction.
func (n *Names) matches(x Other) bool {
	return n.table.Name.MatchString(procfs.Names(x.PID)) && procfs.StartTicks(x.PID) == x.start
}

// toWarnOf reports whether no warning names a process yet, and notes that one does now.
func (n *Names) toWarnOf(x Other) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := n.table.others()
	maps.DeleteFunc(n.warned, func(x Other, _ bool) bool {
		_, running := slices.BinarySearchFunc(list, x, compareOthers)
		return !running
	})
	if n.warned[x] {
		return false
	}
	n.warned[x] = true
	return true
}

// trace has a process traced whose name matches by now.
func (n *Names) trace(b ledger.Books, x Other) {
	t := n.table
	t.mu.Lock()
	p := t.processes[x.PID]
	renamed := p != nil && p.start == x.start && !p.traced
	if renamed {
		p.traced = true
	}
	t.mu.Unlock()
	if !renamed {
		return
	}
	t.tellKernel(b, p)
	b.Tell(ledger.Warning{PID: x.PID, Text: fmt.Sprintf("process %d was not traced until it took a name that matches: what it allocated before counts as from before the attach", x.PID)})
	t.Scan(x.PID)
}

// Warning returns a sentence if processes use CUDA and no name has matched so far, "" otherwise.
func (n *Names) Warning() string {
	list := n.table.others()
	n.table.mu.Lock()
	matched := n.table.matched
	n.table.mu.Unlock()
	if len(list) == 0 || matched || n.table.AnyTraced() {
		return ""
	}
	names := fmt.Sprintf("%s [%d]", untrusted.Clean(procfs.Comm(list[0].PID)), list[0].PID)
	if len(list) == 1 {
		return fmt.Sprintf("no process has a name that matches; one with another name uses CUDA: %s", names)
	}
	return fmt.Sprintf("no process has a name that matches; %d with other names use CUDA, such as %s", len(list), names)
}

// others returns the processes whose names do not match, by pid.
func (t *Table) others() (list []Other) {
	if t.Name == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for pid, p := range t.processes {
		if !p.traced && p.start != 0 {
			list = append(list, Other{pid, p.start})
		}
	}
	slices.SortFunc(list, compareOthers)
	return list
}

func compareOthers(x, y Other) int {
	return cmp.Or(cmp.Compare(x.PID, y.PID), cmp.Compare(x.start, y.start))
}
