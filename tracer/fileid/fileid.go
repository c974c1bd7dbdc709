// SPDX-License-Identifier: Apache-2.0

// Package fileid identifies files, and versions of one file. An inode number alone is not enough:
// file systems reuse it after a deletion, keep it when a file is overwritten, and share it between
// snapshots.
package fileid

import (
	"os"

	"golang.org/x/sys/unix"
)

// ID identifies one version of a file. It is comparable: equal IDs mean the same file with the same
// contents. For a file on an overlay, Device and Inode are the overlay's and the other fields are
// the real file's. A caller that knows the real device and inode from the kernel may set them, so
// that containers of one image have equal IDs.
type ID struct {
	Device    uint64 // st_dev
	Inode     uint64
	Subvolume uint64 // of btrfs, where snapshots share the kernel's device and inode; 0 elsewhere
	Size      int64
	Changed   int64 // ns; the kernel updates it when contents, mode, owner or links change
	Born      int64 // ns; 0 if the file system does not store it
}

// Stat returns the ID of an open file. A descriptor opened with O_PATH is enough.
func Stat(fd int) (ID, error) { return id(fd, "", unix.AT_EMPTY_PATH) }

// StatPath returns the ID of the file at path. It follows symbolic links.
func StatPath(path string) (ID, error) { return id(unix.AT_FDCWD, path, 0) }

// id uses the kernel's cached attributes, if any, instead of waiting for a file server (NFS, FUSE).
func id(fd int, path string, flags int) (ID, error) {
	var st unix.Statx_t
	const mask = unix.STATX_INO | unix.STATX_SIZE | unix.STATX_CTIME | unix.STATX_BTIME | unix.STATX_SUBVOL
	if err := unix.Statx(fd, path, flags|unix.AT_STATX_DONT_SYNC, mask, &st); err != nil {
		return ID{}, &os.PathError{Op: "statx", Path: path, Err: err}
	}
	id := ID{Device: unix.Mkdev(st.Dev_major, st.Dev_minor), Inode: st.Ino, Size: int64(st.Size), Changed: nanoseconds(st.Ctime)}
	if st.Mask&unix.STATX_BTIME != 0 {
		id.Born = nanoseconds(st.Btime)
	}
	switch {
	case st.Mask&unix.STATX_SUBVOL != 0: // Linux 6.10; overlays pass it on
		id.Subvolume = st.Subvol
	case st.Dev_major == 0 && onBtrfs(fd, path): // there, st_dev is the subvolume's own
		id.Subvolume = id.Device
	}
	return id, nil
}

func onBtrfs(fd int, path string) bool {
	var fs unix.Statfs_t
	if path == "" {
		return unix.Fstatfs(fd, &fs) == nil && fs.Type == unix.BTRFS_SUPER_MAGIC
	}
	return unix.Statfs(path, &fs) == nil && fs.Type == unix.BTRFS_SUPER_MAGIC
}

func nanoseconds(t unix.StatxTimestamp) int64 { return t.Sec*1e9 + int64(t.Nsec) }
