// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"testing"
	"time"
)

func TestSystemAllocatedMemoryIsInNoSum(t *testing.T) {
	const gpu = "GPU-a"
	l := New(Options{Begin: 1})
	l.Tell(GPUs{{UUID: gpu, Total: 96 << 30, HasNode: true, Node: 1, Addressing: AddressingATS}})
	l.Tell(Process{PID: 7, Begin: 1, Devices: []string{gpu}})
	l.Tell(UsageReading{Time: 2, Usages: []Usage{{PID: 7, UUID: gpu, Bytes: 300}}})
	l.Tell(SystemReading{PID: 7, Time: 3, On: []SystemOn{{gpu, 40 << 30}, {"GPU-b", 1 << 62}}, Cut: true})
	l.Tell(SystemReading{PID: 8, Time: 3, On: []SystemOn{{gpu, 1}}}) // not traced
	s := l.Snapshot(4, time.Time{})
	if want := (System{Process: 0, UUID: gpu, Device: 0, Bytes: 40 << 30, Time: 3, Cut: true}); len(s.System) != 1 || s.System[0] != want {
		t.Errorf("got %+v, want %+v", s.System, want)
	}
	if p := s.Parts()[0]; p.Foreign != 300 || p.Unexplained != 0 {
		t.Errorf("parts %+v", p)
	}
	if s := s.Only(func(*Process) bool { return false }); len(s.System) != 0 {
		t.Errorf("without its process: %+v", s.System)
	}
	l.Tell(SystemReading{PID: 7, Time: 5})
	if s := l.Snapshot(6, time.Time{}); len(s.System) != 0 {
		t.Errorf("after a reading without any: %+v", s.System)
	}
	l.Tell(SystemReading{PID: 7, Time: 7, On: []SystemOn{{gpu, 1}}})
	l.Apply(&Event{Op: Exit, PID: 7, Time: 8})
	if s := l.Snapshot(9, time.Time{}); len(s.System) != 0 {
		t.Errorf("after the end: %+v", s.System)
	}
}
