// SPDX-License-Identifier: Apache-2.0

package holders

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
)

// waiting is a job in Python that needs no module of the library.
const waiting = `import sys
print("ready", flush=True)
sys.stdin.read()`

// checkFiles wants each page that a process maps from one of its files to be that of the file.
func checkFiles(t *testing.T, p *Process, read func(b []byte, r Region, address uint64) error, contents map[string][]byte) {
	t.Helper()
	files := 0
	for _, r := range p.regions {
		path, _ := procmaps.CutDeleted(r.Path)
		want, is := contents[path]
		if !is || r.Writable || !r.Readable || r.Offset+pageSize > uint64(len(want)) {
			continue
		}
		files++
		var page [pageSize]byte
		if err := read(page[:], r, r.Start); err != nil {
			t.Errorf("%s at %#x: %v", r.Path, r.Offset, err)
		} else if !bytes.Equal(page[:], want[r.Offset:r.Offset+pageSize]) {
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

// Below another root, a path of the process leads elsewhere: the program of a chroot is not in the chroot's
// chroot.
func TestPagesOfFilesInAChrootAreRead(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("chroot needs root")
	}
	program := "/usr/bin/" + filepath.Base(python3(t))
	root := chroot(t, program)
	cmd := exec.Command(program, "-S", "-c", waiting)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	cmd.Dir = "/"
	p := start(t, cmd)
	contents := map[string][]byte{}
	for _, r := range p.regions {
		if strings.HasPrefix(r.Path, root) {
			contents[r.Path] = mustRead(t, r.Path)
		}
	}
	checkFiles(t, p, p.readFile, contents)
	checkFiles(t, p, byName(p), contents)
	if _, err := Walk(context.Background(), p, Options{}); !errors.Is(err, ErrNoTensors) {
		t.Errorf("a walk of a Python in a chroot: %v", err)
	}
}

// byName reads as a caller does that may not open files by their mappings.
func byName(p *Process) func(b []byte, r Region, address uint64) error {
	return func(b []byte, r Region, address uint64) error {
		f, err := p.openByName(r)
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
	program := python3(t)
	dir := t.TempDir()
	library := filepath.Join(dir, "mapped")
	old := bytes.Repeat([]byte("old "), 4*pageSize/4)
	if err := os.WriteFile(library, old, 0o644); err != nil {
		t.Fatal(err)
	}
	const job = `import mmap, sys
file = open(sys.argv[1], "rb")
mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)
print("ready", flush=True)
sys.stdin.read()`
	p := start(t, exec.Command(program, "-c", job, library))
	replaced := filepath.Join(dir, "new")
	if err := os.WriteFile(replaced, bytes.Repeat([]byte("new "), 4*pageSize/4), 0o644); err != nil {
		t.Fatal(err)
	}
	before := p.regions
	if err := os.Rename(replaced, library); err != nil {
		t.Fatal(err)
	}
	if err := p.refresh(); err != nil {
		t.Fatal(err)
	}
	contents := map[string][]byte{library: old}
	if os.Getuid() == 0 {
		checkFiles(t, p, p.readFile, contents)
	}
	// By name, it is not read at all: neither as the map has it now, nor as it was before the replacement.
	for _, regions := range [][]Region{before, p.regions} {
		for _, r := range regions {
			if path, _ := procmaps.CutDeleted(r.Path); path != library {
				continue
			}
			f, err := p.openByName(r)
			if err == nil {
				f.Close()
				t.Errorf("%s was opened by its name", r.Path)
			} else if !strings.Contains(err.Error(), library) {
				t.Errorf("%q does not name the file that is missing", err)
			}
		}
	}
}

func TestAWalkNamesTheMappedFileThatCannotBeRead(t *testing.T) {
	p := &Process{files: map[fileKey]mappedFile{{1, 2}: {err: errors.New("open /usr/lib/libpython3.13.so: permission denied")}, {1, 3}: {}}}
	if got := p.closedFiles(); len(got) != 1 || !strings.Contains(got[0], "libpython3.13.so") {
		t.Errorf("files that cannot be read: %q", got)
	}
	job := syntheticJob()
	delete(job.pages, job.symbols[versionSymbol]>>pageShift)
	_, err := Walk(context.Background(), job, Options{})
	if !errors.Is(err, ErrPython) || strings.Contains(err.Error(), "version 0") || !strings.Contains(err.Error(), "read 0x") {
		t.Errorf("a Python whose version cannot be read: %v", err)
	}
}
