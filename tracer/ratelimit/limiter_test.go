// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"testing"
	"time"
)

var records = Limits{All: 10, OfProcess: 3, OfUser: 8}

func TestALimitIsDividedBetweenProcesses(t *testing.T) {
	r := New(records)
	begin := time.Unix(1e9, 0)
	granted := map[uint32]int{}
	for at := time.Duration(0); at < 2*time.Minute; at += 100 * time.Millisecond {
		if r.Allow(begin.Add(at), 1, 1) { // a flood
			granted[1]++
		}
		if at%(10*time.Second) == 0 && r.Allow(begin.Add(at), 100+uint32(at/time.Second), 1) { // and its children, some of the same user
			granted[2]++
		}
		if at == 55*time.Second || at == 115*time.Second {
			if !r.Allow(begin.Add(at), 3, 3) {
				t.Errorf("another user's process got nothing after %v", at)
			}
			granted[3]++
		}
	}
	if granted[1] != 6 || granted[2] > 10 || granted[3] != 2 {
		t.Errorf("granted %v, want 3 a minute for the flood, 8 for its user", granted)
	}
}

func TestTheLastOfAMinuteIsForAFirst(t *testing.T) {
	r := New(records)
	now := time.Unix(1e9, 0)
	n := 0
	for range 5 {
		for pid := range uint32(4) {
			if r.Allow(now, pid, 10+pid) {
				n++
			}
		}
	}
	if n != records.All-1 {
		t.Errorf("%d for four processes, want %d", n, records.All-1)
	}
	if !r.Allow(now, 9, 9) || r.Allow(now, 10, 10) {
		t.Error("the last one is for a process that has had none, and there is no more than one")
	}
}

func TestWhatIsReturnedIsForOthers(t *testing.T) {
	r := New(records)
	at := time.Unix(1e9, 0)
	for range records.OfProcess {
		r.Allow(at, 7, 7)
	}
	if r.Return(at, 8); r.Allow(at, 7, 7) {
		t.Error("another process returned it")
	}
	if r.Return(at, 7); !r.Allow(at, 7, 7) {
		t.Error("what was returned is not allowed")
	}
}

func TestHalfIsForOtherUsers(t *testing.T) {
	for all := 1; all < 20; all++ {
		r := New(Halved(all))
		now := time.Unix(1e9, 0)
		n := 0
		for pid := range uint32(100) { // a loop that starts programs
			if r.Allow(now, pid, 1) {
				n++
			}
		}
		if n == 0 || n > (all+1)/2 || all > 1 && !r.Allow(now, 200, 2) {
			t.Errorf("of %d a minute one user gets %d", all, n)
		}
	}
}
