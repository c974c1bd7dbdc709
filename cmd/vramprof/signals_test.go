// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestASignalThatSkipsTheWalksDoesNotAbort: the next one does.
func TestASignalThatSkipsTheWalksDoesNotAbort(t *testing.T) {
	signals, aborted := make(chan os.Signal), make(chan bool)
	walks, skips := true, 0
	go func() {
		awaitSecond(signals, func() bool {
			skipped := walks
			walks, skips = false, skips+1
			return skipped
		})
		close(aborted)
	}()
	for range 2 { // the first ends tracing: see run
		select {
		case <-aborted:
			t.Fatal("it aborted at the signal that skips")
		case <-time.After(600 * time.Millisecond):
			signals <- unix.SIGINT
		}
	}
	select {
	case <-aborted:
	case <-time.After(5 * time.Second):
		t.Fatal("it did not abort")
	}
	if skips != 2 {
		t.Errorf("it tried %d times to skip, want 2", skips)
	}
}
