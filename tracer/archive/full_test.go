// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// smallDisk mounts a file system of a few bytes and returns its path.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "mode=0700,size="+size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	return disk
}

// churn has events that compress badly.
func (m *machine) churn(events int) {
	seen := uint64(len(m.live)) + m.clock()
	for i := range events {
		seen = seen*6364136223846793005 + 1442695040888963407
		m.alloc(seen >> 40)
		if len(m.live) > 10 {
			for address := range m.live {
				m.free(address)
				break
			}
		}
		if i%500 == 0 {
			time.Sleep(2 * time.Millisecond)
		}
	}
}

// TestFullDiskCostsTheOldestCapturesFirst: the disk has less room than the archive may take.
func TestFullDiskCostsTheOldestCapturesFirst(t *testing.T) {
	m := newMachine(t)
	m.dir = filepath.Join(smallDisk(t, "512k"), "archive")
	o := m.options()
	o.Size, o.FileSize = 4<<20, 64<<10
	m.open(o)
	m.churn(60_000)
	first := m.captures()[0]
	m.churn(60_000)
	if names := m.captures(); slices.Contains(names, first) || len(names) < 3 {
		t.Errorf("captures %q", names)
	}
	m.wait("a capture", func() bool { m.tell(ledger.GPUs{}); return m.w.Stats().Err == nil })
	sum := m.sum()
	if s := m.w.Stats(); s.LostEvents > 60_000 {
		t.Errorf("%+v", s)
	}
	_ = m.w.End(&ledger.Snapshot{End: m.clock(), Wall: m.wall})
	names := m.captures()
	if m.w.Stats().Err != nil { // the disk was full once more
		return
	}
	if got := liveAt(t, filepath.Join(m.dir, names[len(names)-1])); got != sum {
		t.Errorf("%d bytes live in the last capture, want %d", got, sum)
	}
	if len(m.note) > 1 && !strings.Contains(m.note[0], "no space left on device") {
		t.Errorf("notes %q", m.note)
	}
}

// TestHistoryGoesOnWhenTheDiskHasRoomAgain: somebody else fills the disk, and then makes room.
func TestHistoryGoesOnWhenTheDiskHasRoomAgain(t *testing.T) {
	m := newMachine(t)
	disk := smallDisk(t, "512k")
	m.dir = filepath.Join(disk, "archive")
	o := m.options()
	m.open(o)
	m.churn(1000)
	filler, err := os.Create(filepath.Join(disk, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	for b := make([]byte, 4096); ; {
		if _, err := filler.Write(b); errors.Is(err, unix.ENOSPC) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	m.wait("an error", func() bool { m.churn(1000); return m.w.Stats().Err != nil })
	m.pass(90 * time.Second)
	m.churn(1000)
	lost := m.w.Stats()
	if !errors.Is(lost.Err, unix.ENOSPC) || lost.LostEvents < 1000 || lost.LostTime < 90*time.Second {
		t.Errorf("with a full disk: %+v", lost)
	}
	if err := filler.Truncate(0); err != nil {
		t.Fatal(err)
	}
	m.wait("a capture", func() bool { m.tell(ledger.GPUs{}); return m.w.Stats().Err == nil })
	m.churn(100)
	m.wait("a note", func() bool { m.mu.Lock(); defer m.mu.Unlock(); return len(m.note) == 2 })
	if !strings.HasPrefix(m.note[0], "write to "+m.dir+": no space left on device") || !strings.HasPrefix(m.note[1], "writing to "+m.dir+" again; the archive lacks 1m3") {
		t.Errorf("notes %q", m.note)
	}
	if err := m.w.End(&ledger.Snapshot{End: m.clock(), Wall: m.wall}); err == nil {
		t.Error("End does not name what the archive lacks")
	}
	names := m.captures()
	if got, want := liveAt(t, filepath.Join(m.dir, names[len(names)-1])), m.sum(); got != want {
		t.Errorf("%d bytes live in the last capture, want %d", got, want)
	}
}

// TestReadOnlyDiskCostsHistoryOnly: a disk that the kernel has made read-only is tried again.
func TestReadOnlyDiskCostsHistoryOnly(t *testing.T) {
	m := newMachine(t)
	disk := smallDisk(t, "512k")
	m.dir = filepath.Join(disk, "archive")
	remount := func(flags uintptr) {
		if err := unix.Mount("tmpfs", disk, "tmpfs", unix.MS_REMOUNT|flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	remount(unix.MS_RDONLY)
	m.open(m.options())
	records, err := OpenRecords(m.dir, 10)
	if err != nil {
		t.Fatal(err)
	}
	m.alloc(1 << 20)
	if s := m.w.Stats(); !errors.Is(s.Err, unix.EROFS) || s.LostEvents != 1 {
		t.Errorf("%+v", s)
	}
	if _, err := records.Add(Record{}, nil, nil); !errors.Is(err, unix.EROFS) {
		t.Error(err)
	}
	remount(0)
	m.wait("a capture", func() bool { m.tell(ledger.GPUs{}); return m.w.Stats().Err == nil })
	if _, err := records.Add(Record{}, nil, nil); err != nil {
		t.Error(err)
	}
	m.alloc(1 << 20)
	_ = m.w.End(&ledger.Snapshot{End: m.clock(), Wall: m.wall})
	if names := m.captures(); len(names) != 1 || liveAt(t, filepath.Join(m.dir, names[0])) != 2<<20 {
		t.Errorf("captures %q", names)
	}
}
