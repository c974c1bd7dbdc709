// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/fakecuda"
)

// holder is testdata/holder.c as an unprivileged process: next has it hold its mmap_lock, and then
// release it.
type holder struct {
	pid  uint32
	in   io.Writer
	next func() string
}

func startHolder(t *testing.T, library string) *holder {
	t.Helper()
	folder, err := os.MkdirTemp("", "holder") // others may enter it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	program, device := filepath.Join(folder, "holder"), filepath.Join(folder, "fuse")
	if out, err := exec.Command("gcc", "-O1", "-pthread", "-o", program, "testdata/holder.c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// As /dev/fuse is on most machines: for everyone.
	if err := unix.Mknod(device, unix.S_IFCHR|0o666, int(unix.Mkdev(10, 229))); err != nil {
		t.Skip(err)
	}
	for path, mode := range map[string]os.FileMode{folder: 0o755, device: 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	mount := filepath.Join(folder, "mount")
	if err := os.Mkdir(mount, 0o755); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(folder, filepath.Base(library))
	content, err := os.ReadFile(library)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(copied, content, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, device, mount, copied)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL); _ = cmd.Wait() })
	lines := bufio.NewReader(out)
	h := &holder{uint32(cmd.Process.Pid), in, func() string {
		line, _ := lines.ReadString('\n')
		return strings.TrimSpace(line)
	}}
	if line := h.next(); line != "maps" {
		t.Skip("no file system in user space for an unprivileged process: " + line)
	}
	return h
}

// step has the holder go on, and waits until it has.
func (h *holder) step(t *testing.T, want string) {
	t.Helper()
	if _, err := io.WriteString(h.in, "\n"); err != nil {
		t.Fatal(err)
	}
	if got := h.next(); got != want {
		t.Fatalf("the process prints %q, want %q", got, want)
	}
}

// A process that holds its mmap_lock stopped the iterator over all mappings, and so all discovery.
func TestAProcessThatHoldsItsMappingsStopsNoScan(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	fake := fakecuda.Build(t)
	honest := startUser(t, fake)
	h := startHolder(t, string(fake)+"/libcudart.so.12")
	s, err := OpenScanner()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var mu sync.Mutex
	var left []uint32
	s.skipped = func(pid uint32) {
		mu.Lock()
		defer mu.Unlock()
		left = append(left, pid)
	}
	find := func(pid uint32) (n int) {
		t.Helper()
		done := make(chan []Mapped, 1)
		go func() {
			list, err := s.Scan()
			if err != nil {
				t.Error(err)
			}
			done <- list
		}()
		select {
		case list := <-done:
			for _, l := range list {
				if l.PID == pid {
					n++
				}
			}
		case <-time.After(time.Minute):
			t.Fatal("the scan waits for a process")
		}
		return n
	}
	if n := find(h.pid); n == 0 {
		t.Fatal("the process is not found before it holds its mappings")
	}
	h.step(t, "holds")
	if n := find(honest); n != 3 {
		t.Errorf("%d mappings of another process are found, want 3", n)
	}
	mu.Lock()
	if !slices.Contains(left, h.pid) {
		t.Errorf("processes %d were left out, want %d", left, h.pid)
	}
	mu.Unlock()
	if n := find(honest); n != 3 {
		t.Errorf("%d mappings of another process are found later, want 3", n)
	}
	h.step(t, "released")
	for begin := time.Now(); find(h.pid) == 0; time.Sleep(100 * time.Millisecond) {
		if time.Since(begin) > 90*time.Second {
			t.Fatal("the process is not found after it has released its mappings")
		}
	}
}
