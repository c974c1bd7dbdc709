// SPDX-License-Identifier: Apache-2.0

package export

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// chromeHolders are the most holders of a counter: a viewer shows each as a track.
const chromeHolders = 8

// holders writes a counter for each device of each walked process, with the bytes of its largest
// holders at each walk, and what the others keep.
func (c *chrome) holders(s *ledger.Snapshot) {
	walks := s.Walks
	type onDevice struct {
		process int
		device  int32
	}
	most := map[onDevice]map[string]uint64{} // by path, of all walks
	var order []onDevice
	each := func(w *ledger.Walked, do func(at onDevice, h *ledger.Held)) {
		for i := range w.Held {
			if h := &w.Held[i]; h.Bytes > 0 {
				do(onDevice{w.Process, h.Device}, h)
			}
		}
	}
	for i := range walks {
		each(&walks[i], func(at onDevice, h *ledger.Held) {
			if most[at] == nil {
				most[at] = map[string]uint64{}
				order = append(order, at)
			}
			most[at][h.Path] = max(most[at][h.Path], h.Bytes)
		})
	}
	for _, at := range order {
		shown, name := largest(most[at]), "who keeps "+format.Device(at.device, ledger.Tensor)
		if n := programs(s, at.process); n > 0 {
			name += fmt.Sprintf(", program %d", n+1)
		}
		for i := range walks {
			w := &walks[i]
			if w.Process != at.process || w.Failure != "" {
				continue
			}
			args := map[string]any{}
			for _, path := range shown {
				args[report.CleanPath(path)] = uint64(0)
			}
			var others uint64
			each(w, func(on onDevice, h *ledger.Held) {
				switch {
				case on != at:
				case slices.Contains(shown, h.Path):
					args[report.CleanPath(h.Path)] = h.Bytes
				default:
					others += h.Bytes
				}
			})
			if len(most[at]) > len(shown) {
				args["other holders"] = others
			}
			pid := s.Processes[at.process].PID
			c.event(&traceEvent{Name: name, Category: "memory", Phase: "C", Time: c.at(w.Time), PID: pid, TID: pid, Args: args})
		}
	}
}

// programs counts the processes that had the pid of a process before it.
func programs(s *ledger.Snapshot, process int) (n int) {
	for i := range s.Processes[:process] {
		if s.Processes[i].PID == s.Processes[process].PID {
			n++
		}
	}
	return n
}

// largest returns the paths with the most bytes.
func largest(bytes map[string]uint64) []string {
	paths := make([]string, 0, len(bytes))
	for path := range bytes {
		paths = append(paths, path)
	}
	slices.SortFunc(paths, func(a, b string) int { return cmp.Or(cmp.Compare(bytes[b], bytes[a]), cmp.Compare(a, b)) })
	return paths[:min(len(paths), chromeHolders)]
}
