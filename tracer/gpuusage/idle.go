// SPDX-License-Identifier: Apache-2.0

package gpuusage

import "time"

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
