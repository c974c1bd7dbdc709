// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// minFree is the room that must be there before tracing starts; profiles are
// smaller than this unless there are many thousands of sites.
const minFree = 1 << 20

// output is a file that appears under its name only when it is complete.
type output struct {
	*os.File
	path  string
	force bool
	done  bool
}

// createOutput prepares a file of mode 0600 beside path. Whatever would keep
// the profile from being written is found now, before anything is traced, as far as it can be.
func createOutput(path string, force bool) (*output, error) {
	if st, err := os.Lstat(path); err == nil {
		if st.IsDir() {
			return nil, fmt.Errorf("write %s: it is a directory", path)
		}
		if !force {
			return nil, fmt.Errorf("write %s: %w", path, errExists)
		}
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".vramprof-*") // mode 0600
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", path, errors.Unwrap(err))
	}
	o := &output{File: f, path: path, force: force}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err == nil && fs.Bavail*uint64(fs.Bsize) < minFree {
		o.discard()
		return nil, fmt.Errorf("write %s: %w", path, unix.ENOSPC)
	}
	return o, nil
}

// commit gives the complete file its name.
func (o *output) commit() error {
	err := o.Sync()
	if closeErr := o.Close(); err == nil {
		err = closeErr
	}
	if err == nil && !o.force {
		// link fails where rename would overwrite what has appeared meanwhile
		if err = os.Link(o.Name(), o.path); err == nil {
			os.Remove(o.Name())
		} else if !errors.Is(err, os.ErrExist) {
			err = os.Rename(o.Name(), o.path) // no hard links on this file system
		}
	} else if err == nil {
		err = os.Rename(o.Name(), o.path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", o.path, err)
	}
	o.done = true
	return nil
}

// discard removes what was not committed.
func (o *output) discard() {
	if !o.done {
		o.Close()
		os.Remove(o.Name())
	}
}
