// SPDX-License-Identifier: Apache-2.0

package output

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxNames is how many names are tried until one is free.
const maxNames = 100_000

// Records names and writes the two files of each record of an out-of-memory error.
type Records struct {
	dir    Folder // opened when the session began
	number int    // of the last record of this session
}

// NewRecords returns the records of a session in an open folder.
func NewRecords(dir Folder) *Records { return &Records{dir: dir} }

// Write creates vramprof-oom-PID-N.txt and .pb.gz with the next unused N. It returns the path of
// the text if that was written, even if writing the profile failed.
func (f *Records) Write(pid uint32, text, profile []byte) (path string, err error) {
	for number := f.number + 1; number <= f.number+maxNames; number++ {
		base := fmt.Sprintf("vramprof-oom-%d-%d", pid, number)
		if _, err := f.dir.stat(base+Pprof.Suffix, unix.AT_SYMLINK_NOFOLLOW); err == nil {
			continue
		}
		path = filepath.Join(f.dir.Name(), base+".txt")
		if err = f.writeNew(base+".txt", text); errors.Is(err, ErrExists) {
			continue
		} else if err != nil {
			return "", err
		}
		if err = f.writeNew(base+Pprof.Suffix, profile); errors.Is(err, ErrExists) {
			f.dir.Remove(base + ".txt") // the other name was just taken
			continue
		}
		f.number = number
		return path, err
	}
	return "", fmt.Errorf("write %s: no unused name", filepath.Join(f.dir.Name(), fmt.Sprintf("vramprof-oom-%d-%d.txt", pid, f.number+1)))
}

func (f *Records) writeNew(name string, content []byte) error {
	out, err := f.dir.Create(name)
	if err != nil {
		return err
	}
	defer out.Discard()
	if _, err := out.Write(content); err != nil {
		return out.Failed(err)
	}
	return out.Commit()
}
