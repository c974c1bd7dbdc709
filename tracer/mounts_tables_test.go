// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/fakecuda"
)

// TestContainersOfOneImageShareUnwindTables: the files of an image that are not root's are the same
// ones below each container's overlay, which has a device of its own.
func TestContainersOfOneImageShareUnwindTables(t *testing.T) {
	fakecuda.OnlyFake(t, "it mounts the fake's folder")
	const containers = 3
	m := newMachine(t, 1)
	image := filepath.Join(m.folder, "image")
	if err := os.Mkdir(image, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"libcuda.so.1", "libcudart.so.12"} {
		copyProgram(t, m.fake.Lib(name), filepath.Join(image, name))
		if err := os.Chown(filepath.Join(image, name), 1000, 1000); err != nil {
			t.Fatal(err)
		}
	}
	m.trace(nil)
	script := m.file("ready\nwait\ncudaMalloc a 1000\nprint done\nwait\n")
	for i := range containers {
		at := filepath.Join(m.folder, fmt.Sprint("container", i))
		if err := os.MkdirAll(at+"/empty", 0o755); err != nil {
			t.Fatal(err)
		}
		mount := fmt.Sprintf("set -e; mount -t overlay overlay -o lowerdir=%s:%s/empty %s", image, at, at)
		if out, err := exec.Command("unshare", "-m", "bash", "-c", mount).CombinedOutput(); err != nil {
			t.Skipf("%v: %s", err, out)
		}
		p := m.start(nil, "unshare", "-m", "bash", "-c", mount+"; LD_LIBRARY_PATH="+at+" exec "+m.program("calls_c")+" "+script)
		p.ready()
		m.loaded(p.pid())
		m.workDone()
		p.next()
		p.expect("done")
		s := m.snapshot()
		whole, truncated, missing := m.stacksOf(s, map[uint32]bool{p.pid(): true})
		if whole != 1 || truncated+missing > 0 {
			t.Errorf("container %d: %d stacks are whole, %d truncated, %d missing", i, whole, truncated, missing)
		}
		p.end()
	}
	ids := map[string]bool{}
	for _, f := range m.stacks.Files() {
		if strings.Contains(f.Path, "/container") && strings.HasSuffix(f.Path, "/libcudart.so.12") {
			ids[f.ID] = true
		}
	}
	if len(ids) != 1 {
		t.Errorf("one library has %d tables in %d containers: %v", len(ids), containers, ids)
	}
}

// TestSnapshotsOfBtrfsHaveUnwindTablesOfTheirOwn: a file and its snapshot have one device and inode
// in /proc/PID/maps, and may have one time.
func TestSnapshotsOfBtrfsHaveUnwindTablesOfTheirOwn(t *testing.T) {
	m := newMachine(t, 1)
	mount, image := filepath.Join(m.folder, "btrfs"), filepath.Join(m.folder, "image")
	first, second := filepath.Join(mount, "first"), filepath.Join(mount, "second")
	name := m.name + "program"
	for _, command := range [][]string{
		{"mkdir", mount}, {"truncate", "-s", "128M", image}, {"mkfs.btrfs", "-q", image}, {"mount", "-o", "loop", image, mount},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Skipf("no btrfs can be mounted here: %q: %v: %s", command, err, out)
		}
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", mount).Run() })
	for _, command := range [][]string{
		{"btrfs", "subvolume", "create", first}, {"cp", m.fake.Program("calls_c"), filepath.Join(first, name)},
		{"chown", "1000", filepath.Join(first, name)}, {"btrfs", "subvolume", "snapshot", first, second},
		{"dd", "if=" + m.fake.Program("storm_c"), "of=" + filepath.Join(second, name)}, {"touch", "-r", filepath.Join(first, name), filepath.Join(second, name)},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Skipf("%q: %v: %s", command, err, out)
		}
	}
	m.trace(nil)
	calls := m.start(nil, filepath.Join(first, name), m.file("ready\nwait\ncudaMalloc a 1000\nprint done\nwait\n"))
	storm := m.start(nil, filepath.Join(second, name), "threads", "3")
	for _, p := range []*program{calls, storm} {
		p.ready()
		m.loaded(p.pid())
	}
	m.workDone()
	calls.next()
	calls.expect("done")
	storm.next()
	storm.expect("allocated")
	s := m.snapshot()
	for what, p := range map[string]*program{"the file": calls, "its snapshot": storm} {
		if whole, truncated, missing := m.stacksOf(s, map[uint32]bool{p.pid(): true}); whole == 0 || truncated+missing > 0 {
			t.Errorf("%s: %d stacks are whole, %d truncated, %d missing", what, whole, truncated, missing)
		}
	}
	storm.next()
	calls.end()
}
