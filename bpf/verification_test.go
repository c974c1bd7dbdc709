// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestVerificationYieldsUntilSomebodyWaits(t *testing.T) {
	niceness := func() int {
		n, err := unix.Getpriority(unix.PRIO_PROCESS, unix.Gettid())
		if err != nil {
			t.Error(err)
		}
		return 20 - n // the system call returns 20 - nice
	}
	v := NewVerification()
	if v == nil {
		t.Skip("without CAP_SYS_NICE nothing yields")
	}
	before := niceness()
	v.Run(func() {
		if n := niceness(); n != lowestPriority {
			t.Errorf("the niceness is %d, want %d", n, lowestPriority)
		}
		v.Hurry()
		if n := niceness(); n != before {
			t.Errorf("after Hurry the niceness is %d, want %d", n, before)
		}
	})
	v.Run(func() {
		if n := niceness(); n != before {
			t.Errorf("later the niceness is %d, want %d", n, before)
		}
	})
	var none *Verification
	none.Hurry()
	none.Run(func() {
		if n := niceness(); n != before {
			t.Errorf("without a Verification the niceness is %d, want %d", n, before)
		}
	})
}
