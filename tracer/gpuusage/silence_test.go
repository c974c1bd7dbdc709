// SPDX-License-Identifier: Apache-2.0

package gpuusage

import "testing"

func TestSilenceOfNVMLIsSaidWithItsTime(t *testing.T) {
	const second = uint64(1e9)
	var s silence
	for _, c := range []struct {
		time uint64 // in seconds
		ok   bool
		want string
	}{
		{9, true, ""},
		{12, true, ""},
		{13, false, "NVML has been silent since 2s after the begin (1 reading is missing): usage and what is unexplained are from then"},
		{18, false, "NVML has been silent since 2s after the begin (2 readings are missing): usage and what is unexplained are from then"},
		{20, true, "NVML was silent from 2s after the begin on, for 8s (2 readings are missing): it answers again"},
		{21, true, "NVML was silent from 2s after the begin on, for 8s (2 readings are missing): it answers again"},
		{30, false, "NVML has been silent since 11s after the begin (3 readings are missing): usage and what is unexplained are from then"},
		{31, true, "NVML was silent 2 times from 2s after the begin on, for 18s in all (3 readings are missing): it answers again"},
	} {
		s.read(c.time*second, c.ok)
		if got := s.text(10 * second); got != c.want {
			t.Errorf("after %d s: got %q, want %q", c.time, got, c.want)
		}
	}
	var never silence
	never.read(9*second, false)
	if want := "NVML has been silent since 0s after the begin (1 reading is missing): usage and what is unexplained are from then"; never.text(10*second) != want {
		t.Errorf("got %q, want %q", never.text(10*second), want)
	}
}
