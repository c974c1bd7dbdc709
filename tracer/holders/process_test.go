// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/procmaps"
)

// resident returns how much of a process's memory is resident, in pages.
func resident(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func python3(t *testing.T) string {
	t.Helper()
	programs := pythons(t)
	if len(programs) == 0 {
		t.Skip("no Python")
	}
	return programs[0]
}

func TestCopyTouchesNothing(t *testing.T) {
	// A reservation that is not used, one of which a page is used, and a list that leads into nowhere.
	const job = `import mmap, os, sys
reserved = mmap.mmap(-1, 256 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
partly = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
partly[5 << 20] = 1
shared = mmap.mmap(-1, 64 << 20)
print("ready", flush=True)
sys.stdin.read()`
	p := start(t, exec.Command(python3(t), "-c", job))
	before := resident(t, p.pid)
	c := NewCopy(p, DefaultMemory)
	defer c.Close()
	if err := c.Take(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, r := range p.regions {
		for a := r.Start; a < r.End && r.End-r.Start <= 512<<20; a += 1 << 20 {
			c.u64(a)
		}
	}
	if after := resident(t, p.pid); after != before {
		t.Errorf("%d pages were resident before the copy, %d after it", before, after)
	}
	if !c.whole || c.count < 500 {
		t.Errorf("%d pages were copied", c.count)
	}
}

func TestProcessThatEnds(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := Open(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Symbols(runtimeSymbol); err != ErrNoPython {
		t.Errorf("sleep is a Python: %v", err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	var b [8]byte
	if _, err := p.ReadAt(b[:], p.regions[0].Start); err == nil {
		t.Error("a process that has ended was read")
	}
	if _, err := Walk(context.Background(), p, Options{}); err == nil || !strings.Contains(err.Error(), strconv.Itoa(cmd.Process.Pid)) {
		t.Errorf("walk of a process that has ended: %v", err)
	}
	if _, err := Open(cmd.Process.Pid); err == nil {
		t.Error("a process that has ended was opened")
	}
}

func TestWalkEndsInTime(t *testing.T) {
	m := largeJob(50000)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Walk(ctx, m, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a walk that was canceled: %v", err)
	}
	if _, err := Walk(context.Background(), m, Options{MaxTime: time.Nanosecond}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a walk without time: %v", err)
	}
	// A search that runs out of time keeps what it has found.
	c := NewCopy(m, DefaultMemory)
	defer c.Close()
	ctx, cancel = context.WithCancel(context.Background())
	py, err := newPython(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	s := newSearch(py, DefaultObjects)
	newRootFinder(s, privacy{}).run(nil)
	cancel()
	s.expandAll()
	if s.stopped == "" || len(s.nodes) < 10 || len(s.nodes) > 20000 {
		t.Errorf("%d objects were reached: %q", len(s.nodes), s.stopped)
	}
}

func TestParseRegion(t *testing.T) {
	for line, want := range map[string]Region{
		"00400000-00452000 r-xp 00001000 08:02 173521      /usr/bin/python3": {Start: 0x400000, End: 0x452000, Offset: 0x1000, Path: "/usr/bin/python3", Readable: true, Private: true, device: 0x802, inode: 173521},
		"7f00-7f10 rw-s 00000000 00:05 12 /dev/nvidia 0":                     {Start: 0x7f00, End: 0x7f10, Path: "/dev/nvidia 0", Readable: true, Writable: true, device: 5, inode: 12},
		"7f00-7f10 rw-p 00000000 00:00 0":                                    {Start: 0x7f00, End: 0x7f10, Readable: true, Writable: true, Private: true},
		"7f10-7f00 rw-p 00000000 00:00 0":                                    {},
		"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]": {},
		"": {}, "x": {}, "1-2 rw 0 0 0": {},
	} {
		m, ok := procmaps.Parse(line)
		got, user := regionOf(m)
		ok = ok && user
		if got != want || ok != (want != Region{}) {
			t.Errorf("%q: %+v, %v", line, got, ok)
		}
	}
	for path, forbidden := range map[string]bool{"/dev/nvidia0": true, "/dev/nvidia-uvm": true, "[vvar]": true, "[vdso]": true, "/dev/shm/x": false, "[heap]": false, "": false} {
		if r := (Region{Readable: true, Path: path}); r.forbidden() != forbidden {
			t.Errorf("%q: forbidden is %v", path, r.forbidden())
		}
	}
}

// Kernels of arm64 may have pages of 16 or 64 KiB, and an entry of pagemap for each.
func TestPagemapHasAnEntryForEachPageOfTheKernel(t *testing.T) {
	const present, swapped = 1 << 63, 1 << 62
	for _, shift := range []uint{12, 14, 16} {
		f, err := os.Create(filepath.Join(t.TempDir(), "pagemap"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		p := &Process{pagemap: f, shift: shift}
		r := Region{Start: 8 << shift, End: 12 << shift}
		for i, entry := range []uint64{present, present, swapped, present} {
			if _, err := f.WriteAt(binary.LittleEndian.AppendUint64(nil, entry), int64(8*(8+i))); err != nil {
				t.Fatal(err)
			}
		}
		got := p.appendResident(nil, r, make([]byte, 16))
		want := []span{{8 << shift, 10 << shift}, {11 << shift, 12 << shift}}
		if !slices.Equal(got, want) || p.swapped != 1 || p.skipped != 0 {
			t.Errorf("pages of %d bytes: %x, want %x; %d swapped, %d skipped", 1<<shift, got, want, p.swapped, p.skipped)
		}
		if p.resident(7<<shift) || !p.resident(8<<shift) || p.resident(10<<shift) || !p.resident(11<<shift+1) {
			t.Errorf("pages of %d bytes: the wrong ones are resident", 1<<shift)
		}
	}
}
