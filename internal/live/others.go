// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"sync"
	"time"

	"github.com/vramprof/vramprof/internal/pslist"
	"github.com/vramprof/vramprof/report/tui"
	"github.com/vramprof/vramprof/tracer/nvml"
)

// othersAge is how old a list of what is not traced may be: reading it looks at all processes.
const othersAge = 10 * time.Second

// others are the processes that keep a GPU besides the traced ones, read in the background.
type others struct {
	off    bool         // they are not shown
	driver *nvml.Driver // nil: one is opened each time

	mu      sync.Mutex
	list    []tui.Other
	read    time.Time
	reading bool
}

// latest returns the list as it was read last, and has it read again if it is old.
func (o *others) latest(ctx context.Context) []tui.Other {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.off && !o.reading && time.Since(o.read) >= othersAge {
		o.reading = true
		go func() {
			list := readOthers(ctx, o.driver)
			o.mu.Lock()
			defer o.mu.Unlock()
			o.list, o.read, o.reading = list, time.Now(), false
		}()
	}
	return o.list
}

// readOthers lists what vramprof ps lists; nothing where that fails.
func readOthers(ctx context.Context, driver *nvml.Driver) (list []tui.Other) {
	keepers, err := pslist.Keepers(ctx, driver)
	if err != nil {
		return nil
	}
	for i := range keepers {
		k := &keepers[i]
		x := tui.Other{PID: k.PID, GPU: -1, Bytes: k.Bytes, Command: pslist.WithoutFolder(k.Command), Note: pslist.Note(k), Shares: pslist.Shares(k)}
		if k.GPU != nil {
			x.GPU = *k.GPU
		}
		list = append(list, x)
	}
	return list
}
