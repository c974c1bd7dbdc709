// SPDX-License-Identifier: Apache-2.0

package processes

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// Other is a process that uses CUDA and whose names do not match Name.
type Other struct {
	PID   uint32
	start uint64
}

// Others returns at most so many of them; the next call goes on with those behind. Processes rename
// themselves once they run (setproctitle, Ray, vLLM), and no event tells that.
func (t *Table) Others(most int) []Other {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.others()
	from := slices.IndexFunc(list, func(x Other) bool { return x.PID > t.turn })
	from = max(from, 0) // after the last one, the first
	list = append(list[from:], list[:from]...)
	if list = list[:min(most, len(list))]; len(list) > 0 {
		t.turn = list[len(list)-1].PID
	}
	return list
}

// others returns all of them by pid; t.mu is held.
func (t *Table) others() (list []Other) {
	if t.Name == nil {
		return nil
	}
	for pid, p := range t.processes {
		if !p.traced && !p.stalls && p.start != 0 {
			list = append(list, Other{pid, p.start})
		}
	}
	slices.SortFunc(list, func(x, y Other) int { return cmp.Compare(x.PID, y.PID) })
	return list
}

// Matches reports whether a process has a name by now that matches. It reads /proc/PID, for up to
// 0.5 s: not for a goroutine that has the transaction.
func (t *Table) Matches(x Other) bool {
	return t.Name.MatchString(procfs.Names(x.PID)) && procfs.StartTicks(x.PID) == x.start
}

// Stalls notes that reading the names of a process took long: they are not read again, since each
// read can keep a thread of ours forever.
func (t *Table) Stalls(x Other) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.processes[x.PID]; p != nil && p.start == x.start {
		p.stalls = true
	}
}

// Rename has a process traced whose name matches by now.
func (t *Table) Rename(b ledger.Books, x Other) {
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

// WarnOfOthers returns a sentence if processes use CUDA and no name matches, "" otherwise.
func (t *Table) WarnOfOthers() string {
	t.mu.Lock()
	list := t.others()
	t.mu.Unlock()
	if len(list) == 0 || t.AnyTraced() {
		return ""
	}
	names := fmt.Sprintf("%s [%d]", untrusted.Clean(procfs.Comm(list[0].PID)), list[0].PID)
	if len(list) == 1 {
		return fmt.Sprintf("no process has a name that matches; one with another name uses CUDA: %s", names)
	}
	return fmt.Sprintf("no process has a name that matches; %d with other names use CUDA, such as %s", len(list), names)
}
