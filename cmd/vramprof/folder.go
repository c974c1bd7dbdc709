// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// folder is an open folder. Files are opened by name in it, even if its path later leads elsewhere.
type folder struct{ *os.File }

func openFolder(path string) (folder, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return folder{}, err
	}
	return folder{os.NewFile(uintptr(fd), path)}, nil
}

// folderFor opens the folder of a file and returns the name of the file in it.
func folderFor(path string) (folder, string, error) {
	dir, name := filepath.Split(path)
	if name == "" || name == "." || name == ".." {
		return folder{}, "", unix.EISDIR
	}
	if dir == "" {
		dir = "."
	}
	f, err := openFolder(dir)
	return f, name, err
}

func (f folder) fd() int { return int(f.Fd()) }

func (f folder) stat(name string, flags int) (st unix.Stat_t, err error) {
	return st, unix.Fstatat(f.fd(), name, &st, flags)
}

// isFile reports whether name is an open file itself, not a link to it.
func (f folder) isFile(name string, file *os.File) bool {
	var ours unix.Stat_t
	there, err := f.stat(name, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && unix.Fstat(int(file.Fd()), &ours) == nil && there.Dev == ours.Dev && there.Ino == ours.Ino
}

func (f folder) remove(name string) { _ = unix.Unlinkat(f.fd(), name, 0) }

// unnamed creates a file without a name.
func (f folder) unnamed() (*os.File, error) {
	fd, err := unix.Openat(f.fd(), ".", unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// temporary creates a file with a random name and returns the name.
func (f folder) temporary() (*os.File, string, error) {
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
