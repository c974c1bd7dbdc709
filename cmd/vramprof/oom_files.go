// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// oomFiles names and writes the two files of a record.
type oomFiles struct {
	dir    folder // opened when the session began
	number int    // of the last record of this session
}

// write creates vramprof-oom-PID-N.txt and .pb.gz with the next unused N. It returns the path of
// the text if that was written, even if writing the profile failed.
func (f *oomFiles) write(pid uint32, text, profile []byte) (path string, err error) {
	for number := f.number + 1; number <= f.number+maxOOMNames; number++ {
		base := fmt.Sprintf("vramprof-oom-%d-%d", pid, number)
		if _, err := f.dir.stat(base+".pb.gz", unix.AT_SYMLINK_NOFOLLOW); err == nil {
			continue
		}
		path = filepath.Join(f.dir.Name(), base+".txt")
		if err = f.writeNew(base+".txt", text); errors.Is(err, errExists) {
			continue
		} else if err != nil {
			return "", err
		}
		if err = f.writeNew(base+".pb.gz", profile); errors.Is(err, errExists) {
			f.dir.remove(base + ".txt") // the other name was just taken
			continue
		}
		f.number = number
		return path, err
	}
	return "", fmt.Errorf("write %s: no unused name", filepath.Join(f.dir.Name(), fmt.Sprintf("vramprof-oom-%d-%d.txt", pid, f.number+1)))
}

func (f *oomFiles) writeNew(name string, content []byte) error {
	out, err := createIn(f.dir, name)
	if err != nil {
		return err
	}
	defer out.discard()
	if _, err := out.Write(content); err != nil {
		return out.failed(err)
	}
	return out.commit()
}
