// SPDX-License-Identifier: Apache-2.0

package untrusted

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrNotRegular means that the path leads to a directory, a device, a FIFO or a socket.
var ErrNotRegular = errors.New("not a regular file")

// OpenRegular opens a regular file for reading. It checks the type first: it never opens a device
// and never blocks on a FIFO.
func OpenRegular(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", Clean(path), err)
	}
	return reopen(fd, path)
}

// OpenIn opens a regular file by its path as seen by a process whose root folder is root: symbolic
// links cannot lead out of root.
func OpenIn(root, path string) (*os.File, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", Clean(root), err)
	}
	defer unix.Close(dir)
	fd, err := lookup(dir, path)
	if err != nil {
		return nil, fmt.Errorf("open %s in %s: %w", Clean(path), Clean(root), err)
	}
	return reopen(fd, path)
}

// reopen turns an O_PATH descriptor into a readable file, and closes the descriptor.
func reopen(fd int, path string) (*os.File, error) {
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("stat %s: %w", Clean(path), err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("open %s: %w", Clean(path), ErrNotRegular)
	}
	const flags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC | unix.O_NOCTTY
	opened, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), flags, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", Clean(path), err)
	}
	return os.NewFile(uintptr(opened), path), nil
}

// OpenFolderIn opens a directory by its path as seen by a process whose root folder is root:
// symbolic links cannot lead out of root.
func OpenFolderIn(root, path string) (*os.File, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", Clean(root), err)
	}
	defer unix.Close(dir)
	found, err := lookup(dir, path)
	if err != nil {
		return nil, fmt.Errorf("open %s in %s: %w", Clean(path), Clean(root), err)
	}
	defer unix.Close(found)
	fd, err := unix.Openat(found, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s in %s: %w", Clean(path), Clean(root), err)
	}
	return os.NewFile(uintptr(fd), filepath.Join(root, path)), nil
}
