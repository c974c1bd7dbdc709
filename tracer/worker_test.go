// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"os"
	"os/exec"
	"slices"
	"testing"
)

// A process that the reaper ended too early would be unknown to its last events.
func TestMissingProcessesEndWhenTheirEventsHaveBeenRead(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	dead, alive := uint32(cmd.Process.Pid), uint32(os.Getpid())
	tracer := &Tracer{emptied: 7, processes: map[uint32]*process{dead: {pid: dead}, alive: {pid: alive}}}
	for i, want := range [][]uint32{nil, nil, nil, {dead}} {
		if got := tracer.gone(); !slices.Equal(got, want) {
			t.Errorf("after %d times that the ring was empty: gone %v, want %v", tracer.emptied-7, got, want)
		}
		if i > 0 { // the second look comes before anything was read
			tracer.emptied++
		}
	}
}
