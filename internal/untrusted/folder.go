// SPDX-License-Identifier: Apache-2.0

package untrusted

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrUnsafe means that other users may change what is in a folder.
var ErrUnsafe = errors.New("unsafe folder")

// Rights that other users must not have to a folder.
const (
	NoWriting = 0o022 // they may see the names in it
	NoRights  = 0o077
)

// OwnFolder opens a folder, and creates it with mode 0700 if its parent exists. The folder must
// belong to this user, and others must not have the given rights to it: such a folder is ErrUnsafe.
// A link is refused.
func OwnFolder(path string, without uint32) (*os.Root, error) {
	if err := unix.Mkdir(path, 0o700); err != nil && err != unix.EEXIST {
		return nil, err
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ELOOP || err == unix.ENOTDIR {
		return nil, fmt.Errorf("%w: it is a link, or no folder", ErrUnsafe)
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if own := os.Geteuid(); int(st.Uid) != own {
		return nil, fmt.Errorf("%w: it belongs to user %d, not %d (change its owner, or use another folder)", ErrUnsafe, st.Uid, own)
	}
	if st.Mode&without != 0 {
		return nil, fmt.Errorf("%w: its mode is %#o (chmod 0700, or use another folder)", ErrUnsafe, st.Mode&0o7777)
	}
	return os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", fd))
}
