// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// What is on no known GPU is in the rows of its process, once.
func TestRowsAddUpToWhatNVMLSaysWithoutKnownDevices(t *testing.T) {
	both := func(time, a, b uint64) input {
		return input{time, func(l ledger.Books) {
			l.Tell(ledger.UsageReading{Time: time, Usages: []ledger.Usage{{PID: 7, UUID: "GPU-a", Bytes: a}, {PID: 7, UUID: "GPU-b", Bytes: b}}})
		}}
	}
	alloc := func(time uint64, device int32, size uint64) input {
		return event(ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, Time: time, Device: device, Address: time, Size: size, API: "cudaMalloc"})
	}
	for name, devices := range map[string][]string{"void": nil, "wrong": {"GPU-c", "GPU-d"}, "right": {"GPU-a", "GPU-b"}} {
		tl, _, err := of(&script{list: []input{
			{1, func(l ledger.Books) { l.Tell(ledger.Process{PID: 7, Begin: 1}) }},
			both(2, 300, 400), alloc(150, 0, 70), alloc(250, ledger.UnknownDevice, 500), both(350, 370, 900),
			{400, func(l ledger.Books) { l.Tell(ledger.Devices{PID: 7, UUIDs: devices}) }},
			alloc(450, 1, 1000), both(550, 370, 1900), alloc(650, 2, 5000),
		}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range tl.Times {
			var sum, driver, usage int64
			for _, r := range tl.Rows {
				if driver += int64(r.Driver[i]); r.Beyond != nil { // what NVML does not list yet
					driver += int64(r.Beyond[i])
				}
				sum += int64(r.Tensors[i] + r.Cached[i] + r.Driver[i] + r.Rounding[i] + r.Before[i] + r.Unexplained[i])
				usage += int64(r.Usage[i])
			}
			if sum != usage {
				t.Errorf("%s, step %d: the rows have %d, NVML says %d", name, i, sum, usage)
			}
			if want := []int64{0, 0, 70, 570, 570, 1570, 1570, 6570, 6570, 6570, 6570}[i]; driver != want {
				t.Errorf("%s, step %d: %d bytes of the driver, want %d", name, i, driver, want)
			}
		}
	}
}
