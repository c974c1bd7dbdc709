// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"fmt"
	"time"

	"github.com/vramprof/vramprof/tracer/processes"
)

const (
	// Each second so many processes are looked at that --name leaves out: 10 µs each.
	renamedLooks = 100
	// A process whose names take longer to read stalls its readers, and is not looked at again. A read
	// gives up after 500 ms; a busy machine delays it less.
	renamedPatience = 400 * time.Millisecond
)

// watchNames looks for processes that rename themselves while they run, and has those traced whose
// name matches by now. It is not the worker's: a process can delay who reads its arguments.
func (t *Tracer) watchNames(ctx context.Context) {
	if t.config.Name == nil {
		return
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			for _, x := range t.table.Others(renamedLooks) {
				t.lookAtNames(x)
			}
		}
	}
}

func (t *Tracer) lookAtNames(x processes.Other) {
	defer t.defects.Recovered("a look at processes")
	began := time.Now()
	matches := t.table.Matches(x)
	if time.Since(began) > renamedPatience {
		t.table.Stalls(x)
		t.warnOf(x.PID, fmt.Sprintf("process %d stalls reads of its arguments: it is not traced if it takes a name that matches", x.PID))
	}
	if matches {
		tx := t.sequencer.Begin()
		defer tx.Done()
		t.table.Rename(tx, x)
	}
}
