// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/output"
	"github.com/vramprof/vramprof/internal/session"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// maxUnnamed is how large the capture of a screen may become before the key s gives it a name.
const maxUnnamed = 256 << 20

// maxNames is how many names are tried within one second.
const maxNames = 100

// profileWriter returns what the key w does: it writes a profile of a snapshot into dir.
func profileWriter(dir output.Folder, stacks callstack.Stacks) func(*ledger.Snapshot) (string, error) {
	return func(s *ledger.Snapshot) (path string, err error) {
		stem := output.DefaultName(time.Now())
		for n := range maxNames {
			name := numbered(stem, n) + output.Pprof.Suffix
			o, err := dir.Create(name)
			if errors.Is(err, output.ErrExists) {
				continue
			}
			if err != nil {
				return "", err
			}
			defer o.Discard()
			if err := output.Pprof.Write(o, s, stacks); err != nil {
				return "", o.Failed(err)
			}
			return name, o.Commit()
		}
		return "", fmt.Errorf("write %s: %w", stem+output.Pprof.Suffix, output.ErrExists)
	}
}

// numbered returns "stem", "stem-1", …
func numbered(stem string, n int) string {
	if n == 0 {
		return stem
	}
	return fmt.Sprintf("%s-%d", stem, n)
}

// keptCapture is the capture that a screen writes from the begin of its session, into a file
// without a name. The key s gives it one: a capture that begins in the middle would know nothing of
// what is live. A nil keptCapture is none.
type keptCapture struct {
	out    *output.File
	dir    output.Folder
	writer *capture.Writer
	limit  *limitedFile
	ended  bool
	full   func() *ledger.Snapshot // the books of now

	mu     sync.Mutex
	path   string // once it has a name
	failed error  // why the file lacks what came later
}

// limitedFile fails when a file without a name becomes too large, and then frees what it took.
type limitedFile struct {
	*os.File
	most   atomic.Int64 // bytes; 0: no limit
	beyond atomic.Bool  // it was exceeded
}

var errUnnamedFull = fmt.Errorf("the session's capture exceeded %d MiB before it got a name (vramprof record -o FILE.vram has no limit)", maxUnnamed>>20)

func (f *limitedFile) WriteAt(b []byte, offset int64) (int, error) {
	if most := f.most.Load(); most > 0 && offset+int64(len(b)) > most {
		f.beyond.Store(true)
		_ = f.Truncate(0)
		return 0, errUnnamedFull
	}
	return f.File.WriteAt(b, offset)
}

// keepCapture makes the session write a capture into the current folder. It returns nil if that is
// not possible.
func keepCapture(s *session.Session, dir output.Folder) *keptCapture {
	out, err := dir.Create(output.DefaultName(time.Now()) + output.Capture.Suffix)
	if err != nil || !out.Unnamed() { // it would be left if vramprof is killed
		if err == nil {
			out.Discard()
		}
		return nil
	}
	k := &keptCapture{out: out, dir: dir, limit: &limitedFile{File: out.File}, full: s.Snapshot}
	k.limit.most.Store(maxUnnamed)
	var fs unix.Statfs_t
	if unix.Fstatfs(int(out.Fd()), &fs) == nil && fs.Blocks > 0 {
		k.limit.most.Store(max(min(maxUnnamed, int64(fs.Bavail)*int64(fs.Bsize)/4), 1))
	}
	host, _ := os.Hostname()
	k.writer, err = capture.NewWriter(k.limit, capture.Options{Host: host, Tool: s.Tool, Clock: clock.Now, OnError: func(err error) {
		if path := k.fail(err); path != "" {
			fmt.Fprintf(s.Stderr, "vramprof: write %s: %v; tracing goes on\n", path, err)
		}
	}})
	if err != nil {
		out.Discard()
		return nil
	}
	s.Trace.Capture = k.writer
	return k
}

// fail notes that no more can be written, and returns the name that the file has.
func (k *keptCapture) fail(err error) (path string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failed = err
	return k.path
}

// toggle is what the key s does: it names the capture, and ends it the second time.
func (k *keptCapture) toggle(on bool) (path string, err error) {
	if on {
		return k.name()
	}
	return k.path, k.end(k.full())
}

func (k *keptCapture) name() (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.limit.beyond.Load():
		return "", errUnnamedFull
	case k.failed != nil: // it would lack what came since
		return "", k.failed
	case k.path != "":
		return "", errors.New("this session's capture is written already: " + k.path)
	}
	k.limit.most.Store(0)
	stem := output.DefaultName(time.Now())
	for n := range maxNames {
		name := numbered(stem, n) + output.Capture.Suffix
		err := k.out.PublishAs(name)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return "", k.out.Failed(err)
		}
		k.path = name
		return k.path, nil
	}
	return "", fmt.Errorf("write %s: %w", stem+output.Capture.Suffix, output.ErrExists)
}

// end completes the capture.
func (k *keptCapture) end(s *ledger.Snapshot) error {
	if k.ended {
		return nil
	}
	k.ended = true
	err := k.writer.End(s)
	if e := k.out.Sync(); err == nil {
		err = e
	}
	if err != nil {
		return k.out.Failed(err)
	}
	return nil
}

// finish completes the capture if it has a name.
func (k *keptCapture) finish(w io.Writer, s *ledger.Snapshot) error {
	if k == nil || k.path == "" {
		return nil
	}
	err := k.end(s)
	if err == nil {
		fmt.Fprintf(w, "vramprof: wrote %s\n", k.path)
	}
	return err
}

// close frees the file. Without a name it vanishes.
func (k *keptCapture) close() {
	if k == nil {
		return
	}
	if !k.ended {
		k.ended = true
		_ = k.writer.End(nil)
	}
	k.out.Discard()
}
