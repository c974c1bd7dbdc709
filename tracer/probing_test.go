// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/libraries"
)

func TestManyUnseenFilesTakeOneWarning(t *testing.T) {
	var u unseen
	told := 0
	for i := range maxUnseenTold + 5 {
		if u.note(libraries.Mapped{PID: uint32(i), Name: "libcuda.so.1"}, time.Duration(i)*time.Millisecond) != "" {
			told++
		}
	}
	want := "likewise, 5 further files were called unseen in at most the first 12ms of processes"
	if got := u.text(); told != maxUnseenTold || got != want {
		t.Errorf("%d told, then %q, want %q", told, got, want)
	}
	if got := (&unseen{told: maxUnseenTold}).text(); got != "" {
		t.Errorf("without further ones: %q", got)
	}
}
