// SPDX-License-Identifier: Apache-2.0

package gpuusage

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// node makes a device node; the test is skipped where that is not allowed.
func node(t *testing.T, path string, major, minor uint32) {
	t.Helper()
	if err := unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(major, minor))); err != nil {
		t.Skip(err)
	}
}

func TestOpenNodesOfGPUsAreFoundByWhatTheyAre(t *testing.T) {
	dir := t.TempDir()
	pid := uint32(os.Getpid())
	for name, number := range map[string][2]uint32{
		"nvidia5": {195, 5}, "nvidia0": {195, 3}, "nvidiactl": {195, 255}, "nvidia-modeset": {195, 254}, "nvidia9": {1, 9},
	} {
		path := filepath.Join(dir, name)
		node(t, path, number[0], number[1])
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0) // no driver is behind it
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
	}
	if err := os.WriteFile(filepath.Join(dir, "nvidia7"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(dir, "nvidia7"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := OpenGPUs(pid); !slices.Equal(got, []uint32{3, 5}) {
		t.Errorf("open are %v, want 3 and 5", got)
	}
	if got := OpenGPUs(1 << 30); got != nil {
		t.Errorf("of no process: %v", got)
	}
}

// A process's root can hold links that would lead out of it.
func TestNodesAreThoseBelowTheRootOfTheProcess(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	root, outside := t.TempDir(), t.TempDir()
	node(t, filepath.Join(outside, "nvidia6"), 195, 6)
	inRoot := func() uint32 {
		cmd := exec.Command("sleep", "60")
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
		cmd.Path = "/sleep"
		if err := cmd.Start(); err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return uint32(cmd.Process.Pid)
	}
	build := exec.Command("gcc", "-static", "-x", "c", "-o", filepath.Join(root, "sleep"), "-")
	build.Stdin, _ = os.Open(file(t, "#include <unistd.h>\nint main(void) { return (int)sleep(60); }\n"))
	if out, err := build.CombinedOutput(); err != nil {
		t.Skipf("gcc: %v\n%s", err, out)
	}
	pid := inRoot()
	if got := nodesBelow(pid); got != nil {
		t.Errorf("without a /dev: %v", got)
	}
	if err := os.Symlink(outside, filepath.Join(root, "dev")); err != nil {
		t.Fatal(err)
	}
	if got := nodesBelow(pid); got != nil {
		t.Errorf("a link led out: %v", got)
	}
	if err := os.Remove(filepath.Join(root, "dev")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, minor := range []uint32{4, 2} {
		node(t, filepath.Join(root, "dev", fmt.Sprint("nvidia", minor)), 195, minor)
	}
	if err := os.Symlink(filepath.Join(outside, "nvidia6"), filepath.Join(root, "dev", "nvidia6")); err != nil {
		t.Fatal(err)
	}
	if got := nodesBelow(pid); !slices.Equal(got, []uint32{2, 4}) {
		t.Errorf("below the root are %v, want 2 and 4", got)
	}
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
