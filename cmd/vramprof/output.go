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

// minFree is the free space, in bytes, that must exist before tracing starts: a profile of 100 sites
// takes 30 KB. A larger one for which there is no room is saved in the folder for temporary files.
const minFree = 64 << 10

var (
	errExists    = errors.New("file exists (--force overwrites it)")
	errDirectory = errors.New("is a directory")
)

// output is a file of mode 0600 that gets its name only when it is complete. Until then it has no
// name, so nothing is left of it however vramprof ends. On file systems without unnamed files it
// has a name that begins with ".vramprof-".
type output struct {
	*os.File
	path      string
	dir       folder // stays open: changes of the path do not change where the file appears
	name      string // in dir
	shared    bool   // dir belongs to the caller
	force     bool
	temporary string // name in dir; "" while it has none
	done      bool
}

// createOutput creates the file before tracing starts, so that most errors of writing show up
// immediately.
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

// createIn creates an output in an open folder, which the caller keeps.
func createIn(dir folder, name string) (*output, error) {
	o := &output{path: filepath.Join(dir.Name(), name), dir: dir, name: name, shared: true}
	return o.begin()
}

func (o *output) begin() (*output, error) {
	if err := o.create(); err != nil {
		o.closeFolder()
		return nil, o.failed(err)
	}
	var fs unix.Statfs_t // Blocks is 0 where free space is unknown: /proc, tmpfs without a limit
	if err := unix.Fstatfs(int(o.Fd()), &fs); err == nil && fs.Blocks > 0 && fs.Bavail*uint64(fs.Bsize) < minFree {
		o.discard()
		return nil, o.failed(unix.ENOSPC)
	}
	return o, nil
}

// failed wraps an error of the file, so that its EACCES does not count as a missing privilege.
func (o *output) failed(err error) error {
	return codedError{fmt.Errorf("write %s: %w", o.path, cause(err)), exitError}
}

// cause removes the operation and the name from an error about a file.
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
			return errors.New("not a regular file") // never replace /dev/null
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

// commit syncs the complete file and gives it its name.
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
		if o.force { // link never replaces a file, rename does
			name = temporaryName()
		}
		err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", o.Fd()), o.dir.fd(), name, unix.AT_SYMLINK_FOLLOW)
		if err != nil || !o.force {
			return err
		}
		o.temporary = name
	}
	if !o.force { // keep a file that appeared meanwhile
		err := unix.Renameat2(o.dir.fd(), o.temporary, o.dir.fd(), o.name, unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) { // the file system supports the flag
			return err
		}
	}
	return unix.Renameat(o.dir.fd(), o.temporary, o.dir.fd(), o.name)
}

// discard removes a file that was not committed. After commit it does nothing.
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

// save writes and commits the file. If that fails, it saves the result under the default name in
// the folder for temporary files, and the error says so.
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

// saveElsewhere writes a result into the folder for temporary files after err, and adds the path to
// err.
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
