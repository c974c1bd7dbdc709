// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// TestASignalThatSkipsTheWalksDoesNotAbort: the next one does.
func TestASignalThatSkipsTheWalksDoesNotAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals, aborted := make(chan os.Signal), false
		walks, skips := true, 0
		go func() {
			awaitSecond(signals, func() bool {
				skipped := walks
				walks, skips = false, skips+1
				return skipped
			})
			aborted = true
		}()
		for range 2 { // the first ends tracing: see run
			time.Sleep(600 * time.Millisecond)
			if synctest.Wait(); aborted {
				t.Fatal("it aborted at the signal that skips")
			}
			signals <- unix.SIGINT
		}
		if synctest.Wait(); !aborted || skips != 2 {
			t.Errorf("aborted %v after it tried %d times to skip, want true and 2", aborted, skips)
		}
	})
}

// TestTheFirstSignalEndsWhatOnlyReadsFiles: there are no results to write.
func TestTheFirstSignalEndsWhatOnlyReadsFiles(t *testing.T) {
	for want, lines := range map[bool][]string{
		true:  {"report none.vram", "whatif none.vram", "explain none.vram", "compare none.vram", "leaks none.vram"},
		false: {"top none.vram", "record -p none", "leaks -p none", "holders -p none", "record -d none -- true"},
	} {
		for _, line := range lines {
			p := &program{args: append([]string{"vramprof"}, strings.Fields(line)...)}
			if err := p.run(t.Context(), newApp(p, io.Discard, io.Discard)); err == nil {
				t.Errorf("%s: no error", line)
			} else if p.onlyReads() != want {
				t.Errorf("%s: only reads files: %v, want %v (%v)", line, p.onlyReads(), want, err)
			}
		}
	}
}

// The first Ctrl-C is no fault of the process that is read.
func TestAnInterruptedWalkIsNamedSo(t *testing.T) {
	err := holdersError(42, fmt.Errorf("copy its memory: %w", context.Canceled))
	if got := err.Error(); got != "interrupted while process 42 was read" {
		t.Errorf("got %q", got)
	}
}
