// SPDX-License-Identifier: Apache-2.0

package peek_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vramprof/vramprof/internal/procmaps"
	"github.com/vramprof/vramprof/tracer/holders"
	"github.com/vramprof/vramprof/tracer/holders/peek"
	"github.com/vramprof/vramprof/tracer/holders/pythontest"
)

// waiting is a job in Python that needs no module of the library.
const waiting = `import sys
print("ready", flush=True)
sys.stdin.read()`

// checkFiles wants each page that a process maps from one of its files to be that of the file.
func checkFiles(t *testing.T, p *peek.Process, read func(b []byte, r peek.Region, address uint64) error, contents map[string][]byte) {
	t.Helper()
	files := 0
	for _, r := range p.Regions() {
		path, _ := procmaps.CutDeleted(r.Path)
		want, is := contents[path]
		if !is || r.Writable || !r.Readable || r.Offset+peek.PageSize > uint64(len(want)) {
			continue
		}
		files++
		var page [peek.PageSize]byte
		if err := read(page[:], r, r.Start); err != nil {
			t.Errorf("%s at %#x: %v", r.Path, r.Offset, err)
		} else if !bytes.Equal(page[:], want[r.Offset:r.Offset+peek.PageSize]) {
			t.Errorf("%s at %#x: the page is not the mapped file's", r.Path, r.Offset)
		}
	}
	if files == 0 {
		t.Errorf("the process maps none of %d files", len(contents))
	}
}

func mustRead(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func mustCopy(t *testing.T, from, to string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, mustRead(t, from), 0o755); err != nil {
		t.Fatal(err)
	}
}

// chroot copies a program and what it loads below a folder.
func chroot(t *testing.T, program string) (root string) {
	t.Helper()
	root = t.TempDir()
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		t.Skipf("ldd %s: %v", program, err)
	}
	for _, field := range append(strings.Fields(string(out)), program) {
		if strings.HasPrefix(field, "/") {
			mustCopy(t, field, filepath.Join(root, field))
		}
	}
	library := "/usr/lib/" + filepath.Base(program)
	for _, pattern := range []string{"*.py", "encodings/*.py", "importlib/*.py", "collections/*.py"} {
		found, _ := filepath.Glob(filepath.Join(library, pattern))
		for _, f := range found {
			mustCopy(t, f, filepath.Join(root, f))
		}
	}
	return root
}

// Below another root, a path of the process leads elsewhere: the program of a chroot is not in the
// chroot's chroot.
func TestPagesOfFilesInAChrootAreRead(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("chroot needs root")
	}
	program := "/usr/bin/" + filepath.Base(pythontest.Program(t))
	root := chroot(t, program)
	cmd := exec.Command(program, "-S", "-c", waiting)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	cmd.Dir = "/"
	p := pythontest.Start(t, cmd)
	contents := map[string][]byte{}
	for _, r := range p.Regions() {
		if strings.HasPrefix(r.Path, root) {
			contents[r.Path] = mustRead(t, r.Path)
		}
	}
	checkFiles(t, p, p.ReadFile, contents)
	checkFiles(t, p, byName(p), contents)
	if _, err := holders.Walk(context.Background(), p, holders.Options{}); !errors.Is(err, holders.ErrNoTensors) {
		t.Errorf("a walk of a Python in a chroot: %v", err)
	}
}

// byName reads as a caller does that may not open files by their mappings.
func byName(p *peek.Process) func(b []byte, r peek.Region, address uint64) error {
	return func(b []byte, r peek.Region, address uint64) error {
		f, err := p.OpenByName(r)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.ReadAt(b, int64(address-r.Start+r.Offset))
		return err
	}
}

// A package manager replaces the files of processes that run.
func TestPagesOfAFileThatWasReplacedAreThoseOfTheOldOne(t *testing.T) {
	program := pythontest.Program(t)
	dir := t.TempDir()
	library := filepath.Join(dir, "mapped")
	old := bytes.Repeat([]byte("old "), 4*peek.PageSize/4)
	if err := os.WriteFile(library, old, 0o644); err != nil {
		t.Fatal(err)
	}
	const job = `import mmap, sys
file = open(sys.argv[1], "rb")
mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)
print("ready", flush=True)
sys.stdin.read()`
	p := pythontest.Start(t, exec.Command(program, "-c", job, library))
	replaced := filepath.Join(dir, "new")
	if err := os.WriteFile(replaced, bytes.Repeat([]byte("new "), 4*peek.PageSize/4), 0o644); err != nil {
		t.Fatal(err)
	}
	before := p.Regions()
	if err := os.Rename(replaced, library); err != nil {
		t.Fatal(err)
	}
	if err := p.Refresh(); err != nil {
		t.Fatal(err)
	}
	contents := map[string][]byte{library: old}
	if os.Getuid() == 0 {
		checkFiles(t, p, p.ReadFile, contents)
	}
	// By name, it is not read at all: neither as the map has it now, nor as it was before the
	// replacement.
	for _, regions := range [][]peek.Region{before, p.Regions()} {
		for _, r := range regions {
			if path, _ := procmaps.CutDeleted(r.Path); path != library {
				continue
			}
			f, err := p.OpenByName(r)
			if err == nil {
				f.Close()
				t.Errorf("%s was opened by its name", r.Path)
			} else if !strings.Contains(err.Error(), library) {
				t.Errorf("%q does not name the file that is missing", err)
			}
		}
	}
}
