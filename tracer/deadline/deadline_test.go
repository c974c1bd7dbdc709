// SPDX-License-Identifier: Apache-2.0

package deadline

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOnlyWaitingForTheProcessIsAStall: on a busy machine, a read takes longer than its limit and
// waits for a processor, not for the process. A sleep of its goroutine imitates that.
func TestOnlyWaitingForTheProcessIsAStall(t *testing.T) {
	const limit = 80 * time.Millisecond
	if n, err := Call(limit, func() (int, error) { time.Sleep(3 * limit); return 7, nil }); n != 7 || err != nil {
		t.Errorf("a call without a processor: %d, %v", n, err)
	}
	release := make(chan bool)
	_, err := Call(limit, func() (int, error) { <-release; return 7, nil })
	close(release)
	if !errors.Is(err, ErrStuck) || err != ErrBusy || Stalled(err) {
		t.Errorf("a call that never gets one: %v", err)
	}
	var pipe [2]int
	if err := unix.Pipe(pipe[:]); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	_, err = Call(limit, func() (int, error) {
		for {
			if n, err := unix.Read(pipe[0], make([]byte, 1)); err != unix.EINTR {
				return n, err
			}
		}
	})
	unix.Close(pipe[1])
	if err != ErrStuck || !Stalled(err) {
		t.Errorf("a read that hangs: %v", err)
	}
	for begin := time.Now(); Stuck() > 0; time.Sleep(time.Millisecond) {
		if time.Since(begin) > 30*time.Second {
			t.Fatal("still stuck")
		}
	}
	for end := false; !end; {
		_, err = Call(limit, func() (int, error) {
			for begin := processorTime(unix.Gettid()); processorTime(unix.Gettid()) < begin+2*limit; {
			}
			return 0, nil
		})
		end = err != ErrBusy // where others use the processors
	}
	if err != ErrStuck {
		t.Errorf("a read that takes too much of a processor: %v", err)
	}
}

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
