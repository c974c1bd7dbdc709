// SPDX-License-Identifier: Apache-2.0

package deadline

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestHangingCallsTimeOut(t *testing.T) {
	release := make(chan bool)
	block := func() (int, error) { <-release; return 1, nil }
	never := func() (int, error) { t.Error("called"); return 0, nil }
	for range MaxStuck {
		if _, err := Call(time.Microsecond, block); !errors.Is(err, ErrStuck) {
			t.Fatalf("got %v", err)
		}
	}
	if _, err := Call(time.Minute, never); !errors.Is(err, ErrStuck) {
		t.Errorf("one more than the limit: got %v", err)
	}
	close(release)
	for begin := time.Now(); Stuck() > 0; time.Sleep(time.Millisecond) {
		if time.Since(begin) > 30*time.Second {
			t.Fatal("still stuck")
		}
	}
	if n, err := Call(time.Minute, func() (int, error) { return 7, nil }); n != 7 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	if _, err := Call(time.Minute, func() (int, error) { panic("x") }); err == nil || !strings.Contains(err.Error(), "x") {
		t.Errorf("got %v", err)
	}
}
