// SPDX-License-Identifier: Apache-2.0

package deadline

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLimitsTellTheirCauseApart simulates walks, in looks of 50 ms.
func TestLimitsTellTheirCauseApart(t *testing.T) {
	const look = lookEvery
	limits := Limits{Processor: 10 * time.Second, Waiting: 10 * time.Second, Total: time.Minute}
	for _, c := range []struct {
		name  string
		runs  func(n int) time.Duration // what the walk runs in look n
		waits func(n int) bool
		after time.Duration
		want  string
		stuck bool
	}{
		{"a walk that gets a 20th of a processor", func(int) time.Duration { return look / 20 }, func(int) bool { return false },
			time.Minute, "the machine is too busy: in 1m0s, the walk had a processor for 3s", false},
		{"a walk that gets none", func(int) time.Duration { return 0 }, func(int) bool { return false },
			time.Minute, "the machine is too busy: in 1m0s, the walk had a processor for 0s", false},
		{"a walk with a processor", func(int) time.Duration { return look }, func(int) bool { return false },
			10 * time.Second, "its memory takes more than 10s of a processor to read", false},
		{"a read that never returns", func(int) time.Duration { return 0 }, func(n int) bool { return n > 20 },
			11 * time.Second, "the process blocks reads of its memory: one has waited for 10s", true},
		{"a page each 400 ms", func(n int) time.Duration {
			if n%8 == 0 {
				return 10 * time.Microsecond
			}
			return 0
		}, func(int) bool { return true }, 10 * time.Second, "the process delays reads of its memory: they waited for 10s", true},
		{"a page each 10 ms, on a busy machine", func(int) time.Duration { return 50 * time.Microsecond }, func(n int) bool { return n%2 == 0 },
			20 * time.Second, "the process delays reads of its memory: they waited for 10s", true},
	} {
		w, processor := watch{limits: limits}, time.Duration(0)
		for n := 1; ; n++ {
			processor += c.runs(n)
			err := w.look(look, processor, c.waits(n))
			if err == nil && n < 10000 {
				continue
			}
			if err == nil || err.Error() != c.want || errors.Is(err, ErrStuck) != c.stuck {
				t.Errorf("%s: %v, want %s", c.name, err, c.want)
			}
			if passed := time.Duration(n) * look; passed < c.after-look || passed > c.after+look {
				t.Errorf("%s: ended after %v, want %v", c.name, passed, c.after)
			}
			break
		}
	}
}

// TestAWalkThatWaitsForNoProcessGoesOn: it takes longer than its reads may wait, as on a machine
// whose processors others use.
func TestAWalkThatWaitsForNoProcessGoesOn(t *testing.T) {
	limits := Limits{Processor: time.Minute, Waiting: 80 * time.Millisecond, Total: time.Minute}
	n, err := Walk(context.Background(), limits, func(ctx context.Context) (int, error) {
		time.Sleep(10 * limits.Waiting)
		return 7, ctx.Err()
	})
	if n != 7 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
}

// TestReadsThatHangEndAWalk has a walk, or a goroutine of it, read a pipe that stays empty.
func TestReadsThatHangEndAWalk(t *testing.T) {
	limits := Limits{Processor: time.Minute, Waiting: 80 * time.Millisecond, Total: time.Minute}
	for _, helper := range []bool{false, true} {
		var pipe [2]int
		if err := unix.Pipe(pipe[:]); err != nil {
			t.Fatal(err)
		}
		read := func(ctx context.Context) {
			defer Join(ctx)()
			for n, err := 0, error(unix.EINTR); n == 0 && err == unix.EINTR; {
				n, err = unix.Read(pipe[0], make([]byte, 1))
			}
		}
		_, err := Walk(context.Background(), limits, func(ctx context.Context) (int, error) {
			if !helper {
				read(ctx)
				return 0, nil
			}
			done := make(chan bool)
			go func() { defer close(done); read(ctx) }()
			<-done
			return 0, nil
		})
		if !errors.Is(err, ErrStuck) || !strings.Contains(err.Error(), ErrStuck.Error()) {
			t.Errorf("helper %v: got %v", helper, err)
		}
		if Stuck() != 1 {
			t.Errorf("%d calls are stuck, want 1", Stuck())
		}
		unix.Close(pipe[1])
		for begin := time.Now(); Stuck() > 0; time.Sleep(time.Millisecond) {
			if time.Since(begin) > 30*time.Second {
				t.Fatal("still stuck")
			}
		}
		unix.Close(pipe[0])
	}
}

// TestAWalkReturnsWhatItHas when it has used its processor time, and when its caller gives up.
func TestAWalkReturnsWhatItHas(t *testing.T) {
	spin := func(ctx context.Context) (error, error) {
		for ctx.Err() == nil {
		}
		return context.Cause(ctx), nil
	}
	limits := Limits{Processor: 20 * time.Millisecond, Waiting: time.Minute, Total: time.Minute}
	cause, err := Walk(context.Background(), limits, spin)
	if over := (*LimitError)(nil); err != nil || !errors.As(cause, &over) || over.Used.Processor < limits.Processor || errors.Is(cause, ErrStuck) {
		t.Errorf("got %v, %v", cause, err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("no time")
	cancel(why)
	if cause, err = Walk(ctx, limits, spin); cause != why || err != nil {
		t.Errorf("got %v, %v", cause, err)
	}
	if _, err := Walk(context.Background(), limits, func(context.Context) (int, error) { panic("x") }); err == nil || !strings.Contains(err.Error(), "x") {
		t.Errorf("got %v", err)
	}
}
