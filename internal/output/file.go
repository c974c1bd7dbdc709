// SPDX-License-Identifier: Apache-2.0

package output

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// minFree is the free space, in bytes, that must exist before tracing starts: a profile of 100
// sites takes 30 KB. A larger one for which there is no room is saved in the folder for temporary
// files.
const minFree = 64 << 10

// ErrExists says that a file exists that may not be replaced.
var ErrExists = errors.New("file exists (--force overwrites it)")

var errDirectory = errors.New("is a directory")

// Error is why a result could not be written. Its EACCES is one of the file, not a privilege that
// tracing lacks.
type Error struct{ Err error }

func (e Error) Error() string { return e.Err.Error() }
func (e Error) Unwrap() error { return e.Err }

// File is a file of mode 0600 that gets its name only when it is complete. Until then it has no
// name, so nothing is left of it however vramprof ends. On file systems without unnamed files it
// has a name that begins with ".vramprof-".
type File struct {
	*os.File
	path      string
	dir       Folder // stays open: changes of the path do not change where the file appears
	name      string // in dir
	shared    bool   // dir belongs to the caller
	force     bool
	temporary string // name in dir; "" while it has none
	done      bool
}

// Create creates the file before tracing starts, so that most errors of writing show up
// immediately. It returns ErrExists in an Error if there is a file, unless force is set.
func Create(path string, force bool) (*File, error) {
	o := &File{path: path, force: force}
	var err error
	if o.dir, o.name, err = folderFor(path); err == unix.EISDIR {
		err = errDirectory
	}
	if err != nil {
		return nil, o.Failed(err)
	}
	return o.begin()
}

// Create creates a file in the folder, which the caller keeps open. It never replaces a file.
func (f Folder) Create(name string) (*File, error) {
	o := &File{path: filepath.Join(f.Name(), name), dir: f, name: name, shared: true}
	return o.begin()
}

func (o *File) begin() (*File, error) {
	if err := o.create(); err != nil {
		o.closeFolder()
		return nil, o.Failed(err)
	}
	var fs unix.Statfs_t // Blocks is 0 where free space is unknown: /proc, tmpfs without a limit
	if err := unix.Fstatfs(int(o.Fd()), &fs); err == nil && fs.Blocks > 0 && fs.Bavail*uint64(fs.Bsize) < minFree {
		o.Discard()
		return nil, o.Failed(unix.ENOSPC)
	}
	return o, nil
}

// Failed returns an Error with the path of the file.
func (o *File) Failed(err error) error {
	return Error{fmt.Errorf("write %s: %w", o.path, Cause(err))}
}

// Cause removes the operation and the name from an error about a file.
func Cause(err error) error {
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

func (o *File) create() error {
	if _, err := o.dir.stat(o.name, unix.AT_SYMLINK_NOFOLLOW); err == nil {
		if st, err := o.dir.stat(o.name, 0); err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			return errDirectory
		} else if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
			return errors.New("not a regular file") // never replace /dev/null
		}
		if !o.force {
			return ErrExists
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

func (o *File) closeFolder() {
	if !o.shared {
		o.dir.Close()
	}
}

// Commit syncs the complete file and gives it its name.
func (o *File) Commit() error {
	err := o.Sync()
	if err == nil {
		err = o.publish()
	}
	if closeErr := o.Close(); err == nil {
		err = closeErr
	}
	if errors.Is(err, os.ErrExist) {
		err = ErrExists
	}
	if err != nil {
		return o.Failed(err)
	}
	o.done = true
	o.closeFolder()
	return nil
}

// Unnamed reports whether the file has no name yet, so that nothing is left of it if vramprof is
// killed.
func (o *File) Unnamed() bool { return o.temporary == "" }

// PublishAs gives a file its name before it is complete. The error is os.ErrExist if the name is
// taken.
func (o *File) PublishAs(name string) error {
	o.name = name
	return o.publish()
}

func (o *File) publish() error {
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

// Discard removes a file that was not committed. After Commit it does nothing.
func (o *File) Discard() {
	if o.done {
		return
	}
	o.done = true
	o.Close()
	if o.temporary != "" {
		o.dir.Remove(o.temporary)
	}
	o.closeFolder()
}

// Save writes and commits the file. If that fails, it saves the result under the default name in
// the folder for temporary files, and the error says so.
func (o *File) Save(write func(io.Writer) error, name string) error {
	err := write(o)
	if err != nil {
		err = o.Failed(err)
	} else {
		err = o.Commit()
	}
	if err == nil {
		return nil
	}
	o.Discard()
	return saveElsewhere(err, write, name)
}

// saveElsewhere writes a result into the folder for temporary files after err, and adds the path to
// err.
func saveElsewhere(err error, write func(io.Writer) error, name string) error {
	other, otherErr := Create(filepath.Join(os.TempDir(), name), false)
	if otherErr != nil {
		return err
	}
	defer other.Discard()
	if write(other) != nil || other.Commit() != nil {
		return err
	}
	return Error{fmt.Errorf("%w; it was written to %s instead", err, other.path)}
}

// Temporary creates a file in the folder for temporary files that vanishes with the process.
func Temporary() (*os.File, error) {
	f, err := os.CreateTemp("", ".vramprof-*")
	if err != nil {
		return nil, fmt.Errorf("create a temporary file for the session: %w", err)
	}
	_ = os.Remove(f.Name())
	return f, nil
}
