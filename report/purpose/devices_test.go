// SPDX-License-Identifier: Apache-2.0

package purpose_test

import (
	"testing"

	"github.com/vramprof/vramprof/report/purpose"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Memory snapshots of PyTorch have devices without UUIDs: each has a balance.
func TestDevicesWithoutUUIDsAreApart(t *testing.T) {
	s := &ledger.Snapshot{Processes: []ledger.Process{{PID: 1, Comm: "python3"}}}
	for device := range int32(2) {
		s.Tensors = append(s.Tensors, ledger.Tensors{Process: 0, Device: device, LiveBytes: 1 << 20 << device, Cached: 1 << 19})
	}
	list := purpose.Of(s, nil)
	if len(list) != 2 || list[0].Device != 0 || list[0].Bytes != 3<<19 || list[1].Device != 1 || list[1].Bytes != 5<<19 {
		t.Errorf("%+v, want a balance for each device", list)
	}
}
