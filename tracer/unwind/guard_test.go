// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/process"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/deadline"
)

// mapped maps a file as code into our own process. It returns the process and the mapping as the
// profiler sees them.
func mapped(t *testing.T, path string, owner int) (guarded, *process.RawMapping) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("reading map_files needs root")
	}
	if err := os.Chown(path, owner, owner); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	pid := libpf.PID(os.Getpid())
	u := &Unwinder{tables: &tables{}}
	return guarded{Process: process.New(pid, pid), memory: u.memories.of(uint32(pid)), u: u},
		&process.RawMapping{Vaddr: uint64(uintptr(unsafe.Pointer(&b[0]))), Length: uint64(os.Getpagesize()), Flags: elf.PF_R | elf.PF_X, Path: path, Inode: 1}
}

func fileOf(t *testing.T, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lib.so")
	if err := os.WriteFile(path, text, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFilesOfUsersHaveTheirOwnIDs(t *testing.T) {
	text := bytes.Repeat([]byte("0123456789abcdef"), 4096)
	forged := bytes.Clone(text)
	copy(forged[len(forged)/2:], "forged") // outside of what is hashed
	id := func(text []byte, owner int) libpf.FileID {
		g, m := mapped(t, fileOf(t, text), owner)
		id, err := g.CalculateMappingFileID(m)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	real := id(text, 0)
	if id(text, 0) != real {
		t.Error("two copies of a library of root's have two ids")
	}
	if id(forged, 1000) == real || id(text, 1000) == id(forged, 1000) {
		t.Error("a user's file has the id of another one")
	}
}

func TestATruncatedFileIsAnError(t *testing.T) {
	text, err := os.ReadFile("../../symbolize/testdata/elf/dwarf5.so")
	if err != nil {
		t.Fatal(err)
	}
	path := fileOf(t, text)
	g, m := mapped(t, path, 0)
	file, err := process.OpenELFMapping(g, m)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	// If the file were mapped, this would raise SIGBUS.
	if _, err := file.ReadAt(make([]byte, 64), 0x300); err == nil {
		t.Error("read behind the end")
	}
}

func TestReadsOfAFileAreLimited(t *testing.T) {
	b := newBoundedFile(inMemory{bytes.NewReader(make([]byte, 1<<20))}, 1<<20, 0)
	buf := make([]byte, 1<<20)
	for range maxBytesOfFile >> 20 {
		if _, err := b.ReadAt(buf, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.ReadAt(buf[:1], 0); !errors.Is(err, errBudget) {
		t.Errorf("got %v", err)
	}
}

// TestMemoryThatWasStuckIsReadAgainAfterAPause: a busy machine must not cost a process the names of
// all its later frames; one that always stalls is asked ever more rarely.
func TestMemoryThatWasStuckIsReadAgainAfterAPause(t *testing.T) {
	u := &Unwinder{}
	m := u.memories.of(uint32(os.Getpid()))
	value := uint64(0x1234)
	read := func() error {
		b := make([]byte, 8)
		_, err := m.ReadAt(b, int64(uintptr(unsafe.Pointer(&value))))
		return err
	}
	m.timedOut(time.Now())
	if err := read(); !errors.Is(err, deadline.ErrStuck) {
		t.Errorf("got %v", err)
	}
	m.until = time.Time{} // the pause is over
	if err := read(); err != nil {
		t.Errorf("after the pause: %v", err)
	}
	if list := u.Problems(); len(list) != 1 || !strings.Contains(list[0], "reads of its memory timed out") {
		t.Errorf("problems %q", list)
	}
	now, stalled := time.Now(), time.Duration(0)
	for begin := now; now.Sub(begin) < time.Hour; {
		m.timedOut(now)
		stalled += readPatience
		for now = now.Add(firstPause); m.paused(now); now = now.Add(firstPause) {
		}
	}
	if stalled > time.Hour/100 {
		t.Errorf("a process that always stalls delays others for %v an hour", stalled)
	}
}
