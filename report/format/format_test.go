// SPDX-License-Identifier: Apache-2.0

package format

import (
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestShortUUIDs(t *testing.T) {
	for uuid, want := range map[string]string{
		"GPU-1a2b3c4d-0000-1111-2222-333333333333":         "1a2b3c4d",
		"MIG-9c0d1e2f-0000-1111-2222-333333333333":         "9c0d1e2f",
		"MIG-GPU-1a2b3c4d-0000-1111-2222-333333333333/7/0": "1a2b3c4d/7/0",
		"": "", "\x1b[2Jx": "[2Jx",
	} {
		if got := ShortUUID(uuid); got != want {
			t.Errorf("%q: %q, want %q", uuid, got, want)
		}
	}
}

func TestCountsHaveTheirPlural(t *testing.T) {
	for noun, want := range map[string]string{
		"allocation": "2 allocations", "process": "2 processes", "more branch": "2 more branches", "library": "2 libraries", "context": "2 contexts", "GPU": "2 GPUs",
	} {
		if got := Count(2, noun); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if got := Count(1, noun); got != "1 "+noun {
			t.Errorf("%q of one", got)
		}
	}
}

func TestSpans(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0ms", 512: "1µs", 90 * time.Microsecond: "90µs", 350 * time.Millisecond: "350ms", 8500 * time.Millisecond: "8.5s", 59 * time.Second: "59s",
		132 * time.Second: "2m12s", 3*time.Hour + 5*time.Minute: "3h05m", 52 * time.Hour: "2d4h",
	} {
		if got := Span(uint64(d)); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

func TestAShareIsNeverRoundedToNothing(t *testing.T) {
	for _, c := range []struct {
		part, whole uint64
		want        string
	}{{0, 0, "0%"}, {0, 5, "0%"}, {1, 1 << 40, "less than 0.1%"}, {1, 1001, "less than 0.1%"}, {1, 1000, "0.1%"}, {833, 1000, "83.3%"}, {5, 5, "100.0%"}} {
		if got := Share(c.part, c.whole); got != c.want {
			t.Errorf("%d of %d: %q, want %q", c.part, c.whole, got, c.want)
		}
	}
}

func TestAProcessWithoutAPIDHasNone(t *testing.T) {
	for want, p := range map[string]ledger.Process{
		"python3 [42]": {Comm: "python3", PID: 42}, "PyTorch": {Comm: "PyTorch"}, "pid [7]": {PID: 7},
	} {
		if got := Process(&p); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
