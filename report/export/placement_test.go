// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"testing"

	"github.com/vramprof/vramprof/internal/sums"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Whatever a process reports about its GPUs, no export has more memory of them than NVML.
func TestExportsAddUpToNoMoreThanNVMLSays(t *testing.T) {
	const usage = (735 + 365) * int64(mib)
	for told, devices := range map[string][]string{
		"right": {gpu0, gpu1}, "nothing": {}, "void": {"", ""}, "wrong": {"GPU-other", "GPU-another"}, "half": {gpu1, "GPU-other"},
	} {
		c := play(training(false), begin+10*second, CollectorOptions{})
		c.Tell(ledger.Devices{PID: 4242, UUIDs: devices})
		s := snapshot(c, begin+10*second)
		sums.Check(t, s)
		if got := profiled(t, s, "inuse_space"); got != usage {
			t.Errorf("%s: the profile has %d bytes, NVML %d", told, got, usage)
		}
		var file bytes.Buffer
		if err := Torch(&file, c, s, testStacks()); err != nil {
			t.Fatal(err)
		}
		var sum int64
		for _, x := range view(t, file.Bytes()).segments {
			sum += x.size
		}
		if sum != usage {
			t.Errorf("%s: the snapshot for PyTorch has %d bytes, NVML %d", told, sum, usage)
		}
	}
}

func TestASegmentIsOnTheDeviceThatTheBooksHaveLearned(t *testing.T) {
	c := NewCollector(ledger.New(ledger.Options{Begin: begin}), CollectorOptions{})
	c.Tell(ledger.Process{PID: 7, Begin: begin})
	alloc := ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: 7, TID: 7, Device: ledger.UnknownDevice, Time: begin + second, Address: 0x7f_0000_0000, Size: mib, API: "cudaMalloc"}
	c.Apply(&alloc)
	c.Apply(&ledger.Event{Op: ledger.Learn, PID: 7, TID: 7, Device: 3, Time: begin + 2*second})
	var file bytes.Buffer
	if err := Torch(&file, c, snapshot(c, begin+3*second), testStacks()); err != nil {
		t.Fatal(err)
	}
	if list := view(t, file.Bytes()).segments; len(list) != 1 || list[0].device != 3 {
		t.Errorf("segments %+v, want one on device 3", list)
	}
}
