// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// A process that the reaper ended too early would be unknown to its last events.
func TestMissingProcessesEndWhenTheirEventsHaveBeenRead(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	dead, alive := uint32(cmd.Process.Pid), uint32(os.Getpid())
	tracer := &Tracer{processes: map[uint32]*process{dead: {pid: dead}, alive: {pid: alive}}}
	for i, want := range [][]uint32{nil, nil, nil, {dead}} {
		if got := tracer.gone(); !slices.Equal(got, want) {
			t.Errorf("after %d times that the ring was empty: gone %v, want %v", tracer.emptied.Load(), got, want)
		}
		if i > 0 { // the second look comes before anything was read
			tracer.emptied.Add(1)
		}
	}
}

// TestTablesOfProcessesWithAGPUOpenComeFirst: of many processes with mappings of their own, those that only map CUDA's libraries wait.
func TestTablesOfProcessesWithAGPUOpenComeFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nvidia0")
	if err := unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(195, 0))); err != nil {
		t.Skip(err)
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	own := uint32(os.Getpid())
	const first = 1 << 30 // of pids that nobody has
	var pids []uint32
	different, same := map[uint32]uint64{}, map[uint32]uint64{}
	for i := range uint32(2 * fewLayouts) {
		pids = append(pids, first+i)
		different[first+i], same[first+i] = uint64(i+1), uint64(i%4+1)
	}
	pids = append(pids, own)
	var tracer Tracer
	if now, later := tracer.urgent(pids, different); !slices.Equal(now, []uint32{own}) || len(later) != 2*fewLayouts {
		t.Errorf("at once %v, later %d", now, len(later))
	}
	if now, later := tracer.urgent(pids, same); len(now) != len(pids) || later != nil {
		t.Errorf("of few layouts at once %d, later %d", len(now), len(later))
	}
	if now, later := tracer.urgent(pids[:2*fewLayouts], different); len(now) != 2*fewLayouts || later != nil {
		t.Errorf("where nobody has a GPU open at once %d, later %d", len(now), len(later))
	}
}
