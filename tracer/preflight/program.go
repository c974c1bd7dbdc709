// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// programFile is the program in a file that can be probed and started.
type programFile struct {
	path   string
	remove func()
}

// inMemory creates a file that no other process sees. It reopens the file read-only, since a file
// open for writing cannot be executed.
func inMemory(program []byte) (*programFile, error) {
	fd, err := unix.MemfdCreate("vramprof-selftest", unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before 6.3
		fd, err = unix.MemfdCreate("vramprof-selftest", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	writable := os.NewFile(uintptr(fd), "memfd")
	defer writable.Close()
	if _, err := writable.Write(program); err != nil {
		return nil, err
	}
	readable, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return nil, err
	}
	return &programFile{
		path:   fmt.Sprintf("/proc/self/fd/%d", readable.Fd()),
		remove: func() { readable.Close() },
	}, nil
}

func inTempDir(program []byte) (*programFile, error) {
	dir, err := os.MkdirTemp("", "vramprof-selftest-") // mode 0700
	if err != nil {
		return nil, err
	}
	f := &programFile{path: dir + "/selftest", remove: func() { os.RemoveAll(dir) }}
	if err := os.WriteFile(f.path, program, 0o700); err != nil {
		f.remove()
		return nil, err
	}
	return f, nil
}
