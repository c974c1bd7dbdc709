// SPDX-License-Identifier: Apache-2.0

package quota

import "testing"

func TestNobodyTakesWhatNewcomersNeed(t *testing.T) {
	h := NewByProcess(256)
	take := func(pid, user uint32, n int) (got int) {
		for range n {
			if h.Take(pid, user) {
				got++
			}
		}
		return got
	}
	for _, c := range []struct {
		pid, user uint32
		want      int
	}{
		{1, 1, 64}, // a quarter
		{2, 1, 64},
		{3, 1, 0},  // the user has half
		{4, 2, 64}, // up to the reserve
		{5, 3, 4},  // a newcomer
		{6, 3, 4},
		{7, 3, 4},
		{8, 3, 4},
		{9, 3, 0}, // its user has none any more
		{10, 4, 4},
	} {
		if got := take(c.pid, c.user, 1000); got != c.want {
			t.Errorf("process %d of user %d got %d places, want %d", c.pid, c.user, got, c.want)
		}
	}
	h.Give(1)
	if !h.Room(3, 15) || take(1, 1, 2) != 0 {
		t.Error("what is given back while others have more than the reserve leaves goes to newcomers")
	}
}
