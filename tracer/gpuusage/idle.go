// SPDX-License-Identifier: Apache-2.0

package gpuusage

import (
	"context"
	"time"
)

// idleAfter is how long no process uses CUDA until the driver is suspended. While NVML is
// initialized, the driver cannot be unloaded or replaced, nor a GPU be reset.
const idleAfter = time.Minute

// idle decides when the driver is suspended. Its zero value is that of a driver in use.
type idle struct {
	since     time.Time // no process uses CUDA; zero: one does
	suspended bool
	least     time.Time // suspended until then, whatever processes run already
}

// due reports whether NVML is to be read; used is whether a process uses CUDA.
func (i *idle) due(used bool) bool {
	if i.suspended && used && !time.Now().Before(i.least) {
		i.end()
	}
	return !i.suspended
}

// over reports whether the driver is to be suspended, after a reading.
func (i *idle) over(used bool) bool {
	if used {
		i.since = time.Time{}
	} else if i.since.IsZero() {
		i.since = time.Now()
	}
	return !used && time.Since(i.since) >= idleAfter
}

func (i *idle) end() { *i = idle{} }

// inUse reports whether a process is traced that may use CUDA, or NVML listed any process.
func (m *Monitor) inUse() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.processes) > 0 || m.others
}

// Suspend closes all that is open of the driver, for a minute at least unless a process begins to use
// CUDA. Run must be running.
func (m *Monitor) Suspend(ctx context.Context) error {
	done := make(chan error, 1)
	select {
	case m.rest <- done:
		return <-done // at most timeout later
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *Monitor) suspend(least time.Time) error {
	if m.NVML == nil {
		return nil
	}
	m.one.Lock()
	defer m.one.Unlock()
	defer m.Defects.Recovered(reading)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	err := m.NVML.Suspend(ctx)
	if err == nil {
		m.idle = idle{suspended: true, least: least}
	}
	return err
}
