// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"errors"
	"os"
	"sync/atomic"

	"go.opentelemetry.io/ebpf-profiler/process"

	"github.com/vramprof/vramprof/tracer/fileid"
	"github.com/vramprof/vramprof/tracer/unwindcache"
)

// maxBytesOfFile is how much the profiler and checkFrames may read from one file; the profiler
// reads 16 MiB of the largest library of Debian's PyTorch. Rows take up to six times the memory.
const maxBytesOfFile = 128 << 20

var errBudget = errors.New("the file has more to read than any library")

// boundedFile is a file from which at most maxBytesOfFile bytes are read.
type boundedFile struct {
	f        process.ReadAtCloser
	size     int64
	modified int64
	owner    uint32
	id       fileid.ID // if the owner is not root
	left     atomic.Int64

	// For the cache, if log is not nil:
	name     string
	identity any
	log      *unwindcache.Log // all reads so far
}

func newBoundedFile(f process.ReadAtCloser, size, modified int64) *boundedFile {
	b := &boundedFile{f: f, size: size, modified: modified}
	b.left.Store(maxBytesOfFile)
	return b
}

func (b *boundedFile) ReadAt(p []byte, off int64) (int, error) {
	if b.left.Add(-int64(len(p))) < 0 {
		return 0, errBudget
	}
	n, err := b.f.ReadAt(p, off)
	if isGoBomb(p[:n]) {
		return 0, errBomb
	}
	if b.log != nil {
		b.log.Add(off, p[:n], err)
	}
	return n, err
}

// record has all further reads be noted, unless the file cannot be identified. code is the real
// file below overlayfs, if it is known.
func (b *boundedFile) record(name string, code CodeFile) {
	if code.Inode != 0 {
		b.identity = [...]uint64{uint64(code.Device), code.Inode, code.Size, code.Changed}
	} else if id, err := fileid.Stat(int(b.f.(*os.File).Fd())); err == nil {
		b.identity = id
	} else {
		return
	}
	b.name, b.log = name, new(unwindcache.Log)
}

func (b *boundedFile) Close() error { return b.f.Close() }
