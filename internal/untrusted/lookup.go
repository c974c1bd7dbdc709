// SPDX-License-Identifier: Apache-2.0

package untrusted

import (
	"cmp"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	maxLinks = 40  // as in the kernel
	maxDepth = 256 // folders of a path, each of which takes a descriptor
	maxNames = 4096
)

// lookup returns an O_PATH descriptor of what a path leads to for a process whose root folder is
// dir: absolute links and ".." stay below it. It asks the kernel for one name at a time and never
// for "..": openat2 would do the same in one call, but a seccomp filter cannot see which mode
// openat2 gives a new file, so confined processes may not make it.
func lookup(dir int, name string) (fd int, err error) {
	top, err := unix.FcntlInt(uintptr(dir), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	folders := []int{top} // from the root on
	up := func(depth int) {
		for _, fd := range folders[depth:] {
			unix.Close(fd)
		}
		folders = folders[:depth]
	}
	defer func() { up(0) }()
	isFolder := true // the last of folders, which may be a file
	links, rest := 0, strings.Split(name, "/")
	for len(rest) > 0 {
		next := rest[0]
		rest = rest[1:]
		if next == "" || next == "." || next == ".." {
			if !isFolder {
				return -1, unix.ENOTDIR
			}
			if next == ".." {
				up(max(len(folders)-1, 1))
			}
			continue
		}
		fd, err := unix.Openat(folders[len(folders)-1], next, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, err
		}
		kind, to, err := kindOf(fd)
		if err != nil || kind != unix.S_IFLNK {
			folders, isFolder = append(folders, fd), kind == unix.S_IFDIR
			if err != nil || len(folders) > maxDepth {
				return -1, cmp.Or(err, error(unix.ENAMETOOLONG))
			}
			continue
		}
		unix.Close(fd)
		if links++; links > maxLinks || len(rest) > maxNames {
			return -1, unix.ELOOP
		}
		if path.IsAbs(to) {
			up(1)
		}
		isFolder = true
		rest = append(strings.Split(to, "/"), rest...)
	}
	last := len(folders) - 1
	fd, folders = folders[last], folders[:last]
	return fd, nil
}

// kindOf returns the type of a file, and where a symbolic link leads. Its text alone counts: those
// of /proc lead elsewhere.
func kindOf(fd int) (kind uint32, to string, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return st.Mode & unix.S_IFMT, "", err
	}
	b := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", b)
	return unix.S_IFLNK, string(b[:max(n, 0)]), err
}
