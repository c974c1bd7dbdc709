// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// minFree is the room that must be there before tracing starts; profiles are
// smaller than this unless there are many thousands of sites.
const minFree = 1 << 20

var (
	errExists    = errors.New("it exists (--force overwrites it)")
	errDirectory = errors.New("it is a directory")
)

// output is a file of mode 0600 that appears under its name only when it is
// complete. Until then it has no name, so that nothing is left of it however we end, or
// on file systems without such files a name that begins with ".vramprof-".
type output struct {
	*os.File
	path      string
	dir       folder // stays open: nobody changes where the file appears by changing what the path leads to
	name      string // in dir
	shared    bool   // dir is others' as well
	force     bool
	temporary string // name in dir; "" while it has none
	done      bool
}

// createOutput finds whatever would keep the profile from being written before
// anything is traced, as far as it can be known.
func createOutput(path string, force bool) (*output, error) {
	o := &output{path: path, force: force}
	var err error
	if o.dir, o.name, err = folderFor(path); err == unix.EISDIR {
		err = errDirectory
	}
	if err != nil {
		return nil, o.failed(err)
	}
	return o.begin()
}

// createIn is createOutput for a file in an open folder, which stays the caller's.
func createIn(dir folder, name string) (*output, error) {
	o := &output{path: filepath.Join(dir.Name(), name), dir: dir, name: name, shared: true}
	return o.begin()
}

func (o *output) begin() (*output, error) {
	if err := o.create(); err != nil {
		o.closeFolder()
		return nil, o.failed(err)
	}
	var fs unix.Statfs_t // without Blocks it does not tell: /proc, tmpfs without a limit
	if err := unix.Fstatfs(int(o.Fd()), &fs); err == nil && fs.Blocks > 0 && fs.Bavail*uint64(fs.Bsize) < minFree {
		o.discard()
		return nil, o.failed(unix.ENOSPC)
	}
	return o, nil
}

// failed keeps a file's EACCES from being taken for a missing privilege.
func (o *output) failed(err error) error {
	return codedError{fmt.Errorf("write %s: %w", o.path, cause(err)), exitError}
}

// cause drops the operation and the name that errors about files carry.
func cause(err error) error {
	var program *exec.Error
	if errors.As(err, &program) {
		err = program.Err
	}
	var path *os.PathError
	var link *os.LinkError
	if errors.As(err, &path) {
		err = path.Err
	} else if errors.As(err, &link) {
		err = link.Err
	}
	return err
}

func (o *output) create() error {
	if _, err := o.dir.stat(o.name, unix.AT_SYMLINK_NOFOLLOW); err == nil {
		if st, err := o.dir.stat(o.name, 0); err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			return errDirectory
		} else if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
			return errors.New("it is not a regular file") // replacing /dev/null would be a disaster
		}
		if !o.force {
			return errExists
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var err error
	if o.File, err = o.dir.unnamed(); err != nil {
		o.File, o.temporary, err = o.dir.temporary()
	}
	return err
}

func (o *output) closeFolder() {
	if !o.shared {
		o.dir.Close()
	}
}

// commit gives the complete file its name.
func (o *output) commit() error {
	err := o.Sync()
	if err == nil {
		err = o.publish()
	}
	if closeErr := o.Close(); err == nil {
		err = closeErr
	}
	if errors.Is(err, os.ErrExist) {
		err = errExists
	}
	if err != nil {
		return o.failed(err)
	}
	o.done = true
	o.closeFolder()
	return nil
}

func (o *output) publish() error {
	if o.temporary == "" {
		name := o.name
		if o.force { // a link never replaces, a rename does
			name = temporaryName()
		}
		err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", o.Fd()), o.dir.fd(), name, unix.AT_SYMLINK_FOLLOW)
		if err != nil || !o.force {
			return err
		}
		o.temporary = name
	}
	if !o.force { // what has appeared meanwhile is kept
		err := unix.Renameat2(o.dir.fd(), o.temporary, o.dir.fd(), o.name, unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) { // this file system cannot say so
			return err
		}
	}
	return unix.Renameat(o.dir.fd(), o.temporary, o.dir.fd(), o.name)
}

// discard removes what was not committed; after commit it does nothing.
func (o *output) discard() {
	if o.done {
		return
	}
	o.done = true
	o.Close()
	if o.temporary != "" {
		o.dir.remove(o.temporary)
	}
	o.closeFolder()
}

// save writes and commits the file. If that fails, what was traced is not lost: it
// is saved under the default name in the folder for temporary files, and the error says so.
func (o *output) save(write func(io.Writer) error, name string) error {
	err := write(o)
	if err != nil {
		err = o.failed(err)
	} else {
		err = o.commit()
	}
	if err == nil {
		return nil
	}
	o.discard()
	return saveElsewhere(err, write, name)
}

// saveElsewhere writes what could not be written into the folder for temporary files, and says so in the error.
func saveElsewhere(err error, write func(io.Writer) error, name string) error {
	other, otherErr := createOutput(filepath.Join(os.TempDir(), name), false)
	if otherErr != nil {
		return err
	}
	defer other.discard()
	if write(other) != nil || other.commit() != nil {
		return err
	}
	return codedError{fmt.Errorf("%w; it was written to %s instead", err, other.path), exitError}
}
