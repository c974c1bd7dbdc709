// SPDX-License-Identifier: Apache-2.0

package duration

import (
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": 0, "2": 2 * time.Second, "1.5s": 1500 * time.Millisecond, "10m": 10 * time.Minute, "0.25": 250 * time.Millisecond,
		"0": -1, "-1": -1, "1e300": -1, "inf": -1, "-inf": -1, "nan": -1, "soon": -1, "1 s": -1, "9223372036854775807": -1,
	} {
		got, err := Parse(text)
		if want < 0 && err == nil || want >= 0 && (err != nil || got != want) {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
	}
}
