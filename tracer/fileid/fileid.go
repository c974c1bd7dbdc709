// SPDX-License-Identifier: Apache-2.0

// Package fileid tells files apart, and versions of one file: an inode number alone is given again to another file when its
// file is gone, stays when the file is overwritten, and is shared by snapshots.
package fileid

import (
	"os"

	"golang.org/x/sys/unix"
)

// ID names one version of a file. It is comparable: equal IDs are the same file with the same contents.
// Of a file on an overlay, Device and Inode are the overlay's and the rest is the real file's. A caller that knows the
// real device and inode from the kernel may put them in: then containers of one image agree.
type ID struct {
	Device    uint64 // st_dev
	Inode     uint64
	Subvolume uint64 // of btrfs: the files of snapshots share the kernel's device and inode; 0 elsewhere
	Size      int64
	Changed   int64 // ns; the kernel sets it at each change of contents, mode, owner or links
	Born      int64 // ns; 0 where the file system does not keep it
}

// Of returns the ID of an open file; a descriptor opened with O_PATH does.
func Of(fd int) (ID, error) { return id(fd, "", unix.AT_EMPTY_PATH) }

// At returns the ID of the file that a path leads to, links followed.
func At(path string) (ID, error) { return id(unix.AT_FDCWD, path, 0) }

// id does not wait for a server of files (NFS, FUSE) if the kernel remembers an answer.
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
	case st.Dev_major == 0 && onBtrfs(fd, path): // st_dev is the subvolume's own there
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
