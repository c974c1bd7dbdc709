// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"errors"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/deadline"
)

// fakeStalls returns stalls with a clock of their own, for which process n belongs to user n/100.
func fakeStalls() (s *stalls, clock *time.Time) {
	s, clock = newStalls(), new(time.Time)
	*clock = time.Unix(1e9, 0)
	s.now = func() time.Time { return *clock }
	s.user = func(pid uint32) uint32 { return pid / 100 }
	s.ticks = func(uint32) uint64 { return 1 }
	return s, clock
}

// hang returns a function that waits in the kernel until the test ends.
func hang(t *testing.T) func() (int, error) {
	var pipe [2]int
	if err := unix.Pipe(pipe[:]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(pipe[1]) })
	return func() (n int, err error) {
		for err = unix.EINTR; err == unix.EINTR; {
			n, err = unix.Read(pipe[0], make([]byte, 1))
		}
		unix.Close(pipe[0])
		return n, err
	}
}

// stallOnce makes a call that hangs until the test ends, and reports whether it was made.
func stallOnce(t *testing.T, s *stalls, pid uint32) (made bool) {
	t.Helper()
	read, began := hang(t), make(chan bool, 1)
	_, err := callOf(s, call{pid: pid}, 10*time.Millisecond, func() (int, error) { began <- true; return read() })
	if !errors.Is(err, deadline.ErrStuck) {
		t.Fatalf("process %d: %v", pid, err)
	}
	select {
	case <-began:
		return deadline.Stalled(err)
	default:
		return false
	}
}

func TestABusyMachineIsNoStall(t *testing.T) {
	s, _ := fakeStalls()
	release := make(chan bool)
	_, err := callOf(s, call{pid: 101}, time.Millisecond, func() (int, error) { <-release; return 0, nil })
	close(release)
	if !errors.Is(err, deadline.ErrBusy) || len(s.list()) > 0 || !works(s, 101) {
		t.Errorf("%v; these stall: %+v", err, s.list())
	}
}

func works(s *stalls, pid uint32) bool {
	n, err := callOf(s, call{pid: pid}, time.Minute, func() (int, error) { return 7, nil })
	return n == 7 && err == nil
}

func TestAProcessThatStallsIsLeftAloneAfterGrowingPausesAndOthersAreNot(t *testing.T) {
	s, clock := fakeStalls()
	var pauses []time.Duration
	for i := range 8 {
		_, err := callOf(s, call{pid: 101}, 10*time.Millisecond, func() (int, error) { return unix.Poll(nil, 100) })
		if !deadline.Stalled(err) {
			t.Fatal(err)
		}
		if works(s, 101) {
			t.Fatal("it is looked at again during the pause")
		}
		if s.stallsAgain(101) != (i > 0) {
			t.Errorf("after %d calls it is said to stall: %v", i+1, i == 0)
		}
		if !works(s, 201) || !works(s, 102) {
			t.Fatal("another process waits")
		}
		for len(s.list()) > 0 && s.by[101].stuck > 0 {
			time.Sleep(time.Millisecond)
		}
		pause := s.list()[0].Pause
		pauses = append(pauses, pause/time.Second)
		*clock = clock.Add(pause)
	}
	if want := []time.Duration{1, 2, 4, 8, 16, 32, 60, 60}; !slices.Equal(pauses, want) {
		t.Errorf("pauses %d, want %d", pauses, want)
	}
	if !works(s, 101) || len(s.list()) > 0 {
		t.Errorf("it answers again, and %+v are left", s.list())
	}
}

// A busy machine delays a call, but not for longer than the pause.
func TestACallThatHangsBeyondThePauseIsAStall(t *testing.T) {
	s, clock := fakeStalls()
	stallOnce(t, s, 101)
	if s.stallsAgain(101) {
		t.Error("one call is enough")
	}
	*clock = clock.Add(leastPause)
	if !s.stallsAgain(101) || s.stallsAgain(102) {
		t.Error("a call that hangs for longer is not enough")
	}
}

func TestOneUserDoesNotTakeAllThreadsThatMayHang(t *testing.T) {
	s, _ := fakeStalls()
	made := 0
	for pid := range uint32(100) {
		if stallOnce(t, s, 100+pid) {
			made++
		}
	}
	if most := deadline.MaxStuck / 2; s.users[1].stuck > most || s.users[1].stuck < made {
		t.Errorf("%d of %d calls of a user hang, want at most %d", s.users[1].stuck, made, most)
	}
	if !works(s, 201) {
		t.Error("a process of another user is not looked at")
	}
}

func TestAUserWhoseProcessesStallIsWaitedForBrieflyLater(t *testing.T) {
	s, clock := fakeStalls()
	limit := func(pid uint32) time.Duration {
		limit, err := s.begin(&call{pid: pid}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return limit
	}
	s.timedOut(&call{pid: 101, hasReturned: true}, patienceOfUser)
	if got := limit(102); got != hurried {
		t.Errorf("a process of the user may take %v, want %v", got, hurried)
	}
	if got, err := s.begin(&call{pid: 102, unhurried: true}, time.Minute); got != time.Minute || err != nil {
		t.Errorf("a call that must not be hurried may take %v, %v", got, err)
	}
	if got := limit(201); got != time.Minute {
		t.Errorf("one of another user may take %v", got)
	}
	*clock = clock.Add(recovery * time.Second)
	if got := limit(102); got != time.Minute {
		t.Errorf("later, a process of the user may take %v", got)
	}
}

func TestAProcessWithThePidOfOneThatStalledIsLookedAt(t *testing.T) {
	s, _ := fakeStalls()
	s.timedOut(&call{pid: 101, hasReturned: true}, time.Second)
	s.ticks = func(uint32) uint64 { return 2 }
	if len(s.list()) > 0 || !works(s, 101) {
		t.Error("it is taken for the other one")
	}
}
