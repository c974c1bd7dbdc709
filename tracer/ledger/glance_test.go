// SPDX-License-Identifier: Apache-2.0

package ledger

import "testing"

// TestAGlanceIsWhatRunningProcessesHold: tensors where PyTorch reports them, else allocations.
func TestAGlanceIsWhatRunningProcessesHold(t *testing.T) {
	l := New(Options{})
	alloc := func(pid uint32, address, size, time uint64) {
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: pid, Time: time, Address: address, Size: size})
	}
	alloc(1, 0x1000, 100, 1)
	alloc(2, 0x1000, 1000, 2)
	l.Apply(&Event{Op: Totals, Space: Blocks, PID: 2, Time: 3, Told: ToldAllocated, Allocated: 700, Reserved: 1000})
	alloc(3, 0x1000, 10000, 4)
	l.Apply(&Event{Op: Exit, PID: 3, Time: 5})
	if got, want := l.Glance(), (Glance{Processes: 2, Live: 800}); got != want {
		t.Errorf("it is %+v, want %+v", got, want)
	}
}
