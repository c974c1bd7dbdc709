// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"github.com/vramprof/vramprof/tracer/environ"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/procfs"
	"github.com/vramprof/vramprof/tracer/usage"
)

// introduce tells the books on whose behalf a process runs and which GPUs it sees. Only the worker
// may call it: reading an environment can take a second.
func (t *Tracer) introduce(pid uint32) {
	variables, err := environ.Read(pid)
	if variables == nil && err != nil {
		return // gone
	}
	workload := t.host.Read(pid, variables, procfs.CommandLine(pid))
	view := usage.Look(pid, variables, workload.Container != "")
	turn := t.desk.Take()
	defer turn.Done()
	if !t.table.IsBooked(pid) {
		return
	}
	turn.Tell(ledger.Process{PID: pid, Workload: workload})
	t.usage.Introduce(turn, pid, view)
}
