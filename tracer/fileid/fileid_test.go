// SPDX-License-Identifier: Apache-2.0

package fileid

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// tick is longer than one step of the kernel's coarse clock, which timestamps files.
const tick = 20 * time.Millisecond

func TestAFileKeepsItsIDUnderAllItsNames(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "f"), "one")
	if err := os.Link(path, path+".link"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, path+".symlink"); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	opened, err := Stat(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, path + ".link", path + ".symlink"} {
		if got := at(t, name); got != opened {
			t.Errorf("%s has the ID %+v, its file %+v", name, got, opened)
		}
	}
	if opened.Inode == 0 || opened.Device == 0 || opened.Size != 3 || opened.Changed == 0 {
		t.Errorf("the ID is %+v", opened)
	}
}

func TestAnOverwrittenFileHasAnotherID(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "f"), "one")
	before := at(t, path)
	time.Sleep(tick)
	write(t, path, "two")
	after := at(t, path)
	if before.Inode != after.Inode {
		t.Fatalf("the inode is %d, before %d", after.Inode, before.Inode)
	}
	if before == after {
		t.Errorf("both versions have the ID %+v", after)
	}
}

// TestReusedInodeNumberHasAnotherID relies on ext4, which gives a freed number to the next file.
func TestReusedInodeNumberHasAnotherID(t *testing.T) {
	mount := fileSystem(t, "ext4")
	path := write(t, filepath.Join(mount, "f"), "one")
	before := at(t, path)
	time.Sleep(tick)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	after := at(t, write(t, path, "two"))
	if before.Inode != after.Inode {
		t.Skipf("inode number %d was not reused: %d", before.Inode, after.Inode)
	}
	if before == after {
		t.Errorf("both files have the ID %+v", after)
	}
}

func TestBtrfsSnapshotsHaveDifferentIDs(t *testing.T) {
	mount := fileSystem(t, "btrfs")
	original, snapshot := filepath.Join(mount, "a"), filepath.Join(mount, "b")
	run(t, "btrfs", "-q", "subvolume", "create", original)
	write(t, filepath.Join(original, "f"), "one")
	run(t, "btrfs", "-q", "subvolume", "snapshot", original, snapshot)
	a, b := at(t, filepath.Join(original, "f")), at(t, filepath.Join(snapshot, "f"))
	if a.Subvolume == 0 || b.Subvolume == 0 || a.Subvolume == b.Subvolume {
		t.Errorf("the subvolumes are %d and %d", a.Subvolume, b.Subvolume)
	}
	if a.Device, b.Device = 1, 1; a == b { // the kernel uses one number for both
		t.Errorf("both have the ID %+v", a)
	}
	var empty ID
	if a.Subvolume, b.Subvolume = 0, 0; a == empty || a != b {
		t.Errorf("apart from the subvolume, the same version is %+v and %+v", a, b)
	}
}

// TestOverlaysShareAnIDExceptDeviceAndInode checks that containers of one image have equal IDs once
// a caller has set the real device and inode.
func TestOverlaysShareAnIDExceptDeviceAndInode(t *testing.T) {
	for _, kind := range []string{"ext4", "btrfs"} {
		t.Run(kind, func(t *testing.T) {
			mount := fileSystem(t, kind)
			lower, empty := filepath.Join(mount, "lower"), filepath.Join(mount, "empty")
			if kind == "btrfs" {
				run(t, "btrfs", "-q", "subvolume", "create", lower)
			} else if err := os.Mkdir(lower, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(empty, 0o755); err != nil {
				t.Fatal(err)
			}
			real := at(t, write(t, filepath.Join(lower, "f"), "one"))
			for _, name := range []string{"one", "two"} {
				point := filepath.Join(t.TempDir(), name)
				if err := os.Mkdir(point, 0o755); err != nil {
					t.Fatal(err)
				}
				run(t, "mount", "-t", "overlay", "overlay", "-o", "lowerdir="+lower+":"+empty, point)
				t.Cleanup(func() { run(t, "umount", point) })
				got := at(t, filepath.Join(point, "f"))
				got.Device, got.Inode = real.Device, real.Inode
				if got.Subvolume == 0 {
					got.Subvolume = real.Subvolume // before Linux 6.10
				}
				if got != real {
					t.Errorf("the overlay's file is %+v, the real one %+v", got, real)
				}
			}
		})
	}
}

func TestAMissingFileIsAnError(t *testing.T) {
	if id, err := StatPath(filepath.Join(t.TempDir(), "none")); !os.IsNotExist(err) || id != (ID{}) {
		t.Errorf("%+v, %v", id, err)
	}
	if id, err := Stat(-1); err == nil {
		t.Errorf("%+v", id)
	}
}

func at(t *testing.T, path string) ID {
	t.Helper()
	id, err := StatPath(path)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
}

// fileSystem mounts a new file system from a file. It skips the test without root or the file
// system's tools.
func fileSystem(t *testing.T, kind string) string {
	t.Helper()
	folder := t.TempDir()
	image, mount := filepath.Join(folder, "image"), filepath.Join(folder, "mount")
	f, err := os.Create(image)
	if err == nil {
		err = f.Truncate(128 << 20)
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(mount, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"mkfs." + kind, "-q", image}, {"mount", "-o", "loop", image, mount}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Skipf("cannot mount %s: %q: %v: %s", kind, command, err, out)
		}
	}
	t.Cleanup(func() { run(t, "umount", mount) })
	return mount
}
