// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/tracer/fileid"
)

// mapper maps a file of a CUDA library's name as code, unmaps it after a line and ends after
// another one.
const mapper = `
import mmap, sys
f = open(sys.argv[1], "rb")
m = mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)
f.close()
print("mapped", flush=True)
sys.stdin.readline()
m.close()
print("unmapped", flush=True)
sys.stdin.readline()
`

// unusable makes a file of the driver's name that cannot be probed, and a process that maps it.
func (m *machine) unusable(path string) *program {
	m.t.Helper()
	const python = "/usr/bin/python3"
	if _, err := os.Stat(python); err != nil {
		m.t.Skip(err)
	}
	name := filepath.Join(m.folder, m.name+"py")
	if err := errors.Join(os.WriteFile(path, make([]byte, 4096), 0o644), os.Symlink(python, name)); err != nil && !errors.Is(err, os.ErrExist) {
		m.t.Fatal(err)
	}
	p := m.start(nil, name, m.file(mapper), path)
	p.expect("mapped")
	m.eventually("the file was tried", func() bool {
		return slices.ContainsFunc(m.Snapshot().Warnings, func(text string) bool {
			return strings.HasPrefix(text, fmt.Sprintf("probe libcuda.so.1 of process %d: ", p.pid()))
		})
	})
	return p
}

// traceDrivers begins to trace, and counts the drivers that are probed.
func (m *machine) traceDrivers() (probed *atomic.Int32) {
	m.t.Helper()
	probed = new(atomic.Int32)
	m.trace(func(c *Config) {
		c.Note = func(text string) {
			if strings.HasSuffix(text, " functions of libcuda.so.1") {
				probed.Add(1)
			}
		}
	})
	return probed
}

// allocates runs a program with the driver from a folder, and returns what the books have of it.
func (m *machine) allocates(folder string, probed *atomic.Int32) []string {
	m.t.Helper()
	before := probed.Load()
	p := m.script("calls_c", []string{"LD_LIBRARY_PATH=" + folder + ":" + string(m.fake)}, "ready", "wait", "cuMemAlloc_v2 c 500", "ready", "wait")
	p.ready()
	m.eventually("the driver in "+folder+" is probed", func() bool { return probed.Load() > before })
	m.workDone()
	p.next()
	p.ready()
	defer p.end()
	return describeProcess(m.snapshot(), p.pid(), "")
}

const oneAllocation = "cuda:0 device cuMemAlloc_v2 live 1/500 of 1/500"

// driverIn copies the driver's library to a path.
func (m *machine) driverIn(path string) {
	m.t.Helper()
	b, err := os.ReadFile(m.fake.Lib("libcuda.so.1"))
	if err == nil {
		err = os.WriteFile(path, b, 0o755)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// TestAFileThatCouldNotBeProbedIsTriedAgainWhenItIsAnother: it is overwritten, or its inode number
// has become another file's, while the process that mapped it still runs.
func TestAFileThatCouldNotBeProbedIsTriedAgainWhenItIsAnother(t *testing.T) {
	fakecuda.OnlyFake(t, "it breaks a copy of the fake's driver")
	m := newMachine(t, 1)
	ext4 := fileSystem(t, "ext4")
	probed := m.traceDrivers()
	for name, replace := range map[string]func(t *testing.T, path string, p *program){
		"overwritten": func(t *testing.T, path string, p *program) {},
		"another file with its number": func(t *testing.T, path string, p *program) {
			p.next()
			p.expect("unmapped")
			before, err := fileid.StatPath(path)
			if err := errors.Join(err, os.Remove(path), os.WriteFile(path, nil, 0o755)); err != nil {
				t.Fatal(err)
			}
			if after, err := fileid.StatPath(path); err != nil || after.Inode != before.Inode {
				t.Skipf("the number %d was not given again: %v", before.Inode, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := m.in(t)
			folder, err := os.MkdirTemp(ext4, "")
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(folder, "libcuda.so.1")
			p := m.unusable(path)
			replace(t, path, p)
			m.driverIn(path)
			if got := m.allocates(folder, probed); len(got) != 1 || got[0] != oneAllocation {
				t.Errorf("the books are %q", got)
			}
		})
	}
	m.lastly()
}

// TestALibraryInASnapshotOfBtrfsIsProbed beside the one that it is a snapshot of: the kernel lists
// both with one device and inode number.
func TestALibraryInASnapshotOfBtrfsIsProbed(t *testing.T) {
	m := newMachine(t, 1)
	mount := fileSystem(t, "btrfs")
	probed := m.traceDrivers()
	original, snapshot := filepath.Join(mount, "a"), filepath.Join(mount, "b")
	run := func(args ...string) {
		if out, err := exec.Command("btrfs", args...).CombinedOutput(); err != nil {
			t.Fatalf("btrfs %q: %v: %s", args, err, out)
		}
	}
	run("-q", "subvolume", "create", original)
	m.driverIn(filepath.Join(original, "libcuda.so.1"))
	run("-q", "subvolume", "snapshot", original, snapshot)
	for _, folder := range []string{original, snapshot} {
		if got := m.allocates(folder, probed); len(got) != 1 || got[0] != oneAllocation {
			t.Errorf("%s: the books are %q", folder, got)
		}
	}
	m.lastly()
}

// fileSystem mounts a new one from a file. Without its tools the test is skipped.
func fileSystem(t *testing.T, kind string) string {
	t.Helper()
	image, mount := filepath.Join(t.TempDir(), "image"), t.TempDir()
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 128<<20)); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"mkfs." + kind, "-q", image}, {"mount", "-o", "loop", image, mount}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Skipf("no %s can be mounted here: %q: %v: %s", kind, command, err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", mount).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return mount
}
