// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"slices"
	"strings"
)

// freeObject ends an object of the kernel driver. Most have no memory of a GPU, and are not booked. The
// thread's last free, which may be the call that this one is part of, stays the one to undo.
func (l *Ledger) freeObject(process uint32, e *Event) {
	key := liveKey{e.Address, process, Objects}
	if n, ok := l.live[key]; ok {
		l.drop(key, n, e.Time)
	} else {
		l.endClient(process, e)
	}
}

// endClient ends what a client of the kernel driver has of GPUs, if the event is its end. libcuda gives
// its objects back one by one; a program may also close the client, which is its own handle.
func (l *Ledger) endClient(process uint32, e *Event) {
	client := e.Address >> 32
	if client != e.Address&0xffffffff {
		return
	}
	p := &l.procs[process]
	if p.clients[client] == 0 { // a program may end others in a loop
		return
	}
	l.spend(8 * len(p.sites))
	for _, n := range p.sites {
		s := &l.sites[n]
		if s.space != Objects {
			continue
		}
		for b := s.first; b != 0; {
			x := l.entries.at(b)
			here := b
			b = x.next
			if x.address>>32 == client {
				l.drop(liveKey{x.address, process, Objects}, here, e.Time)
			}
		}
	}
}

// smallestPage is what sizes of memory of a GPU are multiples of.
const smallestPage = 4 << 10

// isInternal reports whether the driver took memory for itself. A size that no memory of a GPU can have
// shows that a later driver has another layout of requests.
func (l *Ledger) isInternal(e *Event) bool {
	if e.Size == 0 || e.Size%smallestPage != 0 || e.Size > maxSize {
		l.warnOf(e.PID, fmt.Sprintf("process %d: the requests of its driver have a layout that vramprof does not know: what the driver takes for itself is unexplained", e.PID))
		return false
	}
	return !l.procs[l.instance(e.PID, e.Time)].isOfGraphs(e)
}

// knowsContext reports whether the books have what the driver took for the context of a process.
func (p *process) knowsContext() bool {
	return slices.ContainsFunc(p.totals, func(t runningTotal) bool { return t.Kind == Internal })
}

// countOfClient counts how many objects of a client are live.
func (p *process) countOfClient(address uint64, change int) {
	client := address >> 32
	n := p.clients[client] + change
	if n <= 0 {
		delete(p.clients, client)
		return
	}
	if p.clients == nil {
		p.clients = make(map[uint64]int)
	}
	p.clients[client] = n
}

// isOfGraphs reports whether the driver took memory for allocations of graphs, which are booked already:
// whole chunks, during a launch, on a GPU where the process has such allocations.
func (p *process) isOfGraphs(e *Event) bool {
	if e.Size%poolChunk != 0 || !strings.HasPrefix(e.API, "cuGraphLaunch") {
		return false
	}
	for device, x := range p.graphs {
		if (device == e.Device || device == UnknownDevice || e.Device == UnknownDevice) && x.most() > 0 {
			return true
		}
	}
	return false
}
