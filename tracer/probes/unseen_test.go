// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/libraries"
)

func TestManyUnseenFilesTakeOneWarning(t *testing.T) {
	var u Unseen
	told := 0
	for i := range maxUnseenTold + 5 {
		if u.Note(libraries.Mapped{PID: uint32(i), Name: "libcuda.so.1"}, time.Duration(i)*time.Millisecond) != "" {
			told++
		}
	}
	want := "5 more libraries were in use for up to 12ms before being probed"
	if got := u.Text(); told != maxUnseenTold || got != want {
		t.Errorf("%d told, then %q, want %q", told, got, want)
	}
	if got := (&Unseen{told: maxUnseenTold}).Text(); got != "" {
		t.Errorf("without further ones: %q", got)
	}
}
