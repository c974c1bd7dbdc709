// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"slices"
	"strings"
)

// smallestPage is what sizes of memory of a GPU are multiples of.
const smallestPage = 4 << 10

// isInternal reports whether the driver took memory for itself. A size that no memory of a GPU can have
// shows that a later driver has another layout of requests.
func (p *heap) isInternal(e *Event) bool {
	if e.Size == 0 || e.Size%smallestPage != 0 || e.Size > maxSize {
		p.warnOf(fmt.Sprintf("process %d: the requests of its driver have a layout that vramprof does not know: what the driver takes for itself is unexplained", e.PID))
		return false
	}
	return !p.isOfGraphs(e)
}

// knowsContext reports whether the books have what the driver took for the context of a process.
func (p *heap) knowsContext() bool {
	return slices.ContainsFunc(p.totals, func(t runningTotal) bool { return t.Kind == Internal })
}

// countOfClient counts how many objects of a client are live.
func (p *heap) countOfClient(address uint64, change int) {
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
func (p *heap) isOfGraphs(e *Event) bool {
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
