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
	want := "likewise, 5 further files were called unseen in at most the first 12ms of processes"
	if got := u.Text(); told != maxUnseenTold || got != want {
		t.Errorf("%d told, then %q, want %q", told, got, want)
	}
	if got := (&Unseen{told: maxUnseenTold}).Text(); got != "" {
		t.Errorf("without further ones: %q", got)
	}
}
