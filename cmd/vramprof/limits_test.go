// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestACaptureBeyondALimitIsAnErrorWithARemedy reads forged.vram, which package capture's forger
// wrote: 5,000 processes in 300 bytes.
func TestACaptureBeyondALimitIsAnErrorWithARemedy(t *testing.T) {
	const path = "testdata/forged.vram"
	for _, command := range [][]string{{"report"}, {"report", "--view", "timeline"}, {"leaks"}, {"export", "-f", "folded", "-o", t.TempDir() + "/out"}, {"diff", path}, {"compare", path}} {
		for _, trusted := range []bool{false, true} {
			args := append([]string{"vramprof"}, append(command, path)...)
			want := exitError
			if trusted {
				args, want = append(args, "--no-limits"), 0
			}
			var out, errors bytes.Buffer
			if code := run(args, &out, &errors); code != want {
				t.Errorf("%q ended with %d: %s", args, code, errors.String())
			}
			if said := strings.Contains(errors.String(), "so it is damaged or forged (--no-limits reads a file that you trust)"); said == trusted {
				t.Errorf("%q said %q", args, errors.String())
			}
		}
	}
}
