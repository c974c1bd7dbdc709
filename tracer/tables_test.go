// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTablesOfProcessesWithAGPUOpenComeFirst: of many processes with mappings of their own, those
// that only map CUDA's libraries wait.
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
	if now, later := urgent(pids, different); !slices.Equal(now, []uint32{own}) || len(later) != 2*fewLayouts {
		t.Errorf("at once %v, later %d", now, len(later))
	}
	if now, later := urgent(pids, same); len(now) != len(pids) || later != nil {
		t.Errorf("of few layouts at once %d, later %d", len(now), len(later))
	}
	if now, later := urgent(pids[:2*fewLayouts], different); len(now) != 2*fewLayouts || later != nil {
		t.Errorf("where nobody has a GPU open at once %d, later %d", len(now), len(later))
	}
}
