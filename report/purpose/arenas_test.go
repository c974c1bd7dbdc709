// SPDX-License-Identifier: Apache-2.0

package purpose

import (
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report/reporttest"
)

// TestArenasOfAProcessAreNotedOnce: which of its GPUs they are on is not known.
func TestArenasOfAProcessAreNotedOnce(t *testing.T) {
	const mib = 1 << 20
	s := reporttest.Explained()
	arenas := []Arena{{"ONNX Runtime", 11 * mib, 4 * mib, 8 * mib}, {"ONNX Runtime", 2 * mib, mib, mib}}
	for _, c := range []struct {
		pid    uint32
		arenas []Arena
		want   string
	}{
		{s.Processes[0].PID, arenas[:1], "ONNX Runtime's arena has 11.0 MiB from the driver: 4.00 MiB in use, 7.00 MiB idle. At most 8.00 MiB was in use so far."},
		{s.Processes[0].PID, arenas, "ONNX Runtime's 2 arenas have 13.0 MiB from the driver: 5.00 MiB in use, 8.00 MiB idle. At most 9.00 MiB was in use so far."},
		{s.Processes[0].PID + 1, arenas, ""},
		{s.Processes[0].PID, nil, ""},
	} {
		said := 0
		list := With(s, nil, &More{PID: c.pid, Arenas: c.arenas})
		for i := range list {
			for _, note := range list[i].Notes(s) {
				if strings.Contains(note, "arena") {
					said++
					if note != c.want {
						t.Errorf("%q, want %q", note, c.want)
					}
				}
			}
		}
		if len(list) < 2 || (said == 1) != (c.want != "") || said > 1 {
			t.Errorf("%d notes in %d balances, want %q once", said, len(list), c.want)
		}
	}
}
