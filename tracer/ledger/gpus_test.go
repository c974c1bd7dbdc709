// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"testing"
	"time"
)

func TestAGPUSaysWhatItUsedHalfOfTheTimeAgo(t *testing.T) {
	for _, readings := range []uint64{2, 5, 40, 1000} {
		l := New(Options{Begin: 1e9})
		for i := range readings {
			l.Tell(GPUs{{UUID: "GPU-a", Total: 1 << 40, Used: 1000 + i}})
			l.Tell(UsageReading{Time: 2e9 + i*1e9})
		}
		g := l.Snapshot(2e9+readings*1e9, time.Time{}).GPUs[0]
		if readings < 3 {
			if g.EarlierTime != 0 {
				t.Errorf("%d readings: %+v", readings, g)
			}
			continue
		}
		half := (readings - 1) / 2
		if i := g.EarlierUsed - 1000; g.Time != 2e9+(readings-1)*1e9 || g.EarlierTime != 2e9+i*1e9 || i > half+readings/10+1 || i+readings/10+1 < half {
			t.Errorf("%d readings: %+v", readings, g)
		}
	}
}
