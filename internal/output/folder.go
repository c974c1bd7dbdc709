// SPDX-License-Identifier: Apache-2.0

package output

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Folder is an open folder. Files are opened by name in it, even if its path later leads elsewhere.
type Folder struct{ *os.File }

// OpenFolder opens a folder that need not be readable. It returns unix.ENOTDIR if path is another
// file.
func OpenFolder(path string) (Folder, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Folder{}, err
	}
	return Folder{os.NewFile(uintptr(fd), path)}, nil
}

// folderFor opens the folder of a file and returns the name of the file in it.
func folderFor(path string) (Folder, string, error) {
	dir, name := filepath.Split(path)
	if name == "" || name == "." || name == ".." {
		return Folder{}, "", unix.EISDIR
	}
	if dir == "" {
		dir = "."
	}
	f, err := OpenFolder(dir)
	return f, name, err
}

func (f Folder) fd() int { return int(f.Fd()) }

func (f Folder) stat(name string, flags int) (st unix.Stat_t, err error) {
	return st, unix.Fstatat(f.fd(), name, &st, flags)
}

// isFile reports whether name is an open file itself, not a link to it.
func (f Folder) isFile(name string, file *os.File) bool {
	var ours unix.Stat_t
	there, err := f.stat(name, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && unix.Fstat(int(file.Fd()), &ours) == nil && there.Dev == ours.Dev && there.Ino == ours.Ino
}

// Remove removes a file, if there is one.
func (f Folder) Remove(name string) { _ = unix.Unlinkat(f.fd(), name, 0) }

// unnamed creates a file without a name.
func (f Folder) unnamed() (*os.File, error) {
	fd, err := unix.Openat(f.fd(), ".", unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// temporary creates a file with a random name and returns the name.
func (f Folder) temporary() (*os.File, string, error) {
	for {
		name := temporaryName()
		fd, err := unix.Openat(f.fd(), name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
		if err == unix.EEXIST {
			continue
		}
		if err != nil {
			return nil, "", err
		}
		return os.NewFile(uintptr(fd), f.Name()), name, nil
	}
}

func temporaryName() string { return fmt.Sprintf(".vramprof-%d-%d", os.Getpid(), rand.Uint64()) }
