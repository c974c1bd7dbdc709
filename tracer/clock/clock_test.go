// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"context"
	"testing"
	"time"
)

func TestClockIsThatOfTheKernelInATimeNamespaceToo(t *testing.T) {
	for text, want := range map[string]int64{
		"monotonic           0         0\nboottime            0         0\n": 0,
		"monotonic      100000       500\nboottime       200000         0\n": 100_000_000_000_500,
		"monotonic          -5         1\n":                                  -4_999_999_999,
		"boottime            7         0\n":                                  0,
		"monotonic x 0\n":                                                    0,
		"":                                                                   0,
	} {
		if got := offsetIn(text); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
	if a, b := Now(), Now(); a == 0 || b < a {
		t.Errorf("%d, then %d", a, b)
	}
}

func TestEveryCallsAgainUntilItsContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	began, calls := time.Now(), 0
	Every(ctx, time.Millisecond, func() {
		if calls++; calls == 3 {
			cancel()
		}
	})
	if took := time.Since(began); calls < 3 || took < 3*time.Millisecond {
		t.Errorf("%d calls in %v, want at least 3, a millisecond apart", calls, took)
	}
}
