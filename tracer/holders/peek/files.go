// SPDX-License-Identifier: Apache-2.0

package peek

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/procmaps"
	"github.com/vramprof/vramprof/internal/untrusted"
)

const maxFiles = 256 // that are kept open

// errOther reports a path that leads to another file than the one that is mapped.
var errOther = errors.New("its path leads to another file now")

// fileKey identifies a mapped file, as /proc/PID/maps has it.
type fileKey struct{ device, inode uint64 }

// mappedFile is an open file, or why it could not be opened.
type mappedFile struct {
	*os.File
	path string
	err  error
}

// File returns the open file of a mapping, or why it cannot be opened. Process.Close closes it.
func (p *Process) File(r Region) (*os.File, error) {
	key := fileKey{r.device, r.inode}
	f, known := p.files[key]
	if !known {
		if len(p.files) >= maxFiles {
			return nil, fmt.Errorf("open %s: more than %d mapped files", untrusted.Clean(r.Path), maxFiles)
		}
		f = mappedFile{path: r.Path}
		f.File, f.err = p.open(r)
		p.files[key] = f
	}
	return f.File, f.err
}

// open opens the file of a mapping: by the mapping, which needs CAP_CHECKPOINT_RESTORE or
// CAP_SYS_ADMIN, or by a name.
func (p *Process) open(r Region) (*os.File, error) {
	if f, err := untrusted.OpenRegular(p.proc(fmt.Sprintf("map_files/%x-%x", r.Start, r.End))); err == nil {
		return f, nil
	}
	return p.openByName(r)
}

// openByName opens the file of a mapping as the process's program, by its path as the process sees
// it, as in a container, or by its path as the caller sees it, as in a chroot. What it opens is the
// mapped file.
func (p *Process) openByName(r Region) (*os.File, error) {
	if f, err := untrusted.OpenRegular(p.proc("exe")); err == nil {
		if r.isOf(f, true) {
			return f, nil
		}
		f.Close()
	}
	path, gone := procmaps.CutDeleted(r.Path)
	if gone {
		return nil, fmt.Errorf("open %s: it was deleted or replaced, and opening it by its mapping needs CAP_CHECKPOINT_RESTORE", untrusted.Clean(path))
	}
	var err error
	for _, root := range []string{p.proc("root"), "/"} {
		f, failure := untrusted.OpenIn(root, path)
		if failure == nil {
			if r.isOf(f, root == "/") {
				return f, nil
			}
			f.Close()
			failure = errOther
		}
		if no := unix.Errno(0); errors.As(failure, &no) {
			failure = no // users do not know paths below /proc
		}
		if err == nil {
			err = fmt.Errorf("open %s: %w", untrusted.Clean(path), failure)
		}
	}
	return nil, err
}

// isOf reports whether a file is the one that a region maps. The kernel shows other device numbers
// for mappings than for files of btrfs, and of an overlay also other inodes: unless the check is
// strict, the same path is enough there.
func (r Region) isOf(f *os.File, strict bool) bool {
	var st unix.Stat_t
	var fs unix.Statfs_t
	if unix.Fstat(int(f.Fd()), &st) != nil || unix.Fstatfs(int(f.Fd()), &fs) != nil {
		return false
	}
	switch {
	case st.Ino == r.inode && uint64(st.Dev) == r.device:
		return true
	case fs.Type == unix.OVERLAYFS_SUPER_MAGIC:
		return !strict
	}
	return fs.Type == unix.BTRFS_SUPER_MAGIC && st.Ino == r.inode && !strict
}

// readFile reads a page that the process has mapped from a file and not touched.
func (p *Process) readFile(b []byte, r Region, address uint64) error {
	f, err := p.File(r)
	if err != nil {
		return err
	}
	clear(b)
	if n, err := f.ReadAt(b, int64(address-r.Start+r.Offset)); err != nil && (!errors.Is(err, io.EOF) || n == 0) {
		return fmt.Errorf("read %#x from %s: %w", address, untrusted.Clean(r.Path), err)
	}
	return nil
}

// ClosedFiles returns why mapped files could not be opened, sorted, at most some.
func (p *Process) ClosedFiles() (reasons []string) {
	const most = 4
	for _, f := range p.files {
		if f.err != nil {
			reasons = append(reasons, f.err.Error())
		}
	}
	slices.Sort(reasons)
	if n := len(reasons); n > most {
		reasons = append(reasons[:most], fmt.Sprintf("%d more mapped files could not be opened", n-most))
	}
	return reasons
}
