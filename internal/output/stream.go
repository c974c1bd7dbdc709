// SPDX-License-Identifier: Apache-2.0

package output

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// Destination is the file or stream that a user names for a result. A file appears when it is
// complete.
type Destination interface {
	// Save writes the result and completes it. If that fails, it saves the result under name in the
	// folder for temporary files, and the error says so.
	Save(write func(io.Writer) error, name string) error
	Discard()       // removes what was not saved, as far as that is possible
	Label() string  // the path as the user gave it
	IsStdout() bool // then everything else goes to stderr
}

// Label implements Destination.
func (o *File) Label() string { return o.path }

// IsStdout implements Destination.
func (*File) IsStdout() bool { return false }

// ErrTerminal says that a user named a terminal for binary data.
var ErrTerminal = errors.New("binary data is not written to a terminal (use -o FILE, or redirect it)")

// Open opens the file or stream that a user named for a result: "-" is stdout. It returns
// ErrTerminal for binary data to a terminal.
func Open(path string, force, binary bool) (Destination, error) {
	if !IsStream(path) {
		return Create(path, force)
	}
	return openStream(path, binary)
}

// IsStream reports whether a path is stdout, an open descriptor, a FIFO or a device, which are
// written into and not replaced. It does not follow links, because others may have made them.
func IsStream(path string) bool {
	if _, ours := descriptorOf(path); ours {
		return true
	}
	st, err := os.Lstat(path)
	return err == nil && st.Mode()&(os.ModeNamedPipe|os.ModeCharDevice) != 0
}

// descriptorOf returns the descriptor that a path names: "-", /dev/stdout, /dev/fd/63 of a shell's
// ">(command)".
func descriptorOf(path string) (fd int, ok bool) {
	switch path {
	case "-", "/dev/stdout":
		return 1, true
	case "/dev/stderr":
		return 2, true
	}
	for _, dir := range []string{"/dev/fd/", "/proc/self/fd/"} {
		if text, ok := strings.CutPrefix(path, dir); ok {
			n, err := strconv.ParseUint(text, 10, 31)
			return int(n), err == nil
		}
	}
	return 0, false
}

// stream is a stream: it gets no name at the end, and written data cannot be removed.
type stream struct {
	*os.File
	path string
	own  bool // opened here
}

func openStream(path string, binary bool) (*stream, error) {
	s := &stream{path: path}
	var err error
	if fd, ours := descriptorOf(path); ours {
		err = s.take(fd)
	} else {
		err = s.open()
	}
	if err != nil {
		return nil, s.Failed(err)
	}
	if binary && term.IsTerminal(int(s.Fd())) {
		s.Discard()
		return nil, fmt.Errorf("write %s: %w", path, ErrTerminal)
	}
	return s, nil
}

func (s *stream) Failed(err error) error {
	return Error{fmt.Errorf("write %s: %w", s.path, Cause(err))}
}

// take uses a descriptor that vramprof inherited. For stdout it uses os.Stdout itself, so that
// SIGPIPE ends vramprof as usual.
func (s *stream) take(fd int) error {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	if flags&unix.O_ACCMODE == unix.O_RDONLY {
		return errors.New("not open for writing")
	}
	if fd == 1 {
		s.File = os.Stdout
		return nil
	}
	if fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3); err != nil {
		return err
	}
	s.File, s.own = os.NewFile(uintptr(fd), s.path), true
	return nil
}

// open opens a FIFO or a device. It never waits for a reader.
func (s *stream) open() error {
	var before, now unix.Stat_t
	if err := unix.Lstat(s.path, &before); err != nil {
		return err
	}
	if err := mayWriteInto(s.path, &before); err != nil {
		return err
	}
	fd, err := unix.Open(s.path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENXIO) {
		return errors.New("the FIFO has no reader (start the reader first)")
	}
	if err != nil {
		return err
	}
	if err = unix.Fstat(fd, &now); err == nil && (now.Dev != before.Dev || now.Ino != before.Ino) {
		err = errors.New("it was replaced while it was opened")
	}
	if err == nil {
		err = unix.SetNonblock(fd, false)
	}
	if err != nil {
		unix.Close(fd)
		return err
	}
	s.File, s.own = os.NewFile(uintptr(fd), s.path), true
	return nil
}

// mayWriteInto refuses devices other than terminals and /dev/null, zero and full, and FIFOs of
// other users in folders like /tmp.
func mayWriteInto(path string, st *unix.Stat_t) error {
	if st.Mode&unix.S_IFMT == unix.S_IFIFO {
		var dir unix.Stat_t
		if err := unix.Stat(filepath.Dir(path), &dir); err != nil {
			return err
		}
		if dir.Mode&unix.S_ISVTX != 0 && dir.Mode&0o022 != 0 && int(st.Uid) != os.Geteuid() && st.Uid != dir.Uid {
			return errors.New("the FIFO belongs to another user")
		}
		return nil
	}
	switch major, minor := unix.Major(st.Rdev), unix.Minor(st.Rdev); {
	case major == 1 && (minor == 3 || minor == 5 || minor == 7): // null, zero, full
	case major == 4 || major == 5 || major >= 136 && major <= 143: // terminals
	default:
		return errors.New("is a device (-o takes files, FIFOs, /dev/null and terminals)")
	}
	return nil
}

// Save writes the result. If that fails, it saves the result in the folder for temporary files,
// unless the reader is gone.
func (s *stream) Save(write func(io.Writer) error, name string) error {
	err := write(s)
	if err != nil {
		err = s.Failed(err)
	}
	if s.own {
		if closeErr := s.Close(); err == nil && closeErr != nil {
			err = s.Failed(closeErr)
		}
		s.own = false
	}
	if err == nil || errors.Is(err, unix.EPIPE) {
		return err
	}
	return saveElsewhere(err, write, name)
}

func (s *stream) Discard() {
	if s.own {
		s.Close()
		s.own = false
	}
}

func (s *stream) Label() string  { return s.path }
func (s *stream) IsStdout() bool { return IsStdout(s.path) }

// IsStdout reports whether one of the paths is stdout.
func IsStdout(paths ...string) bool {
	for _, path := range paths {
		if fd, ok := descriptorOf(path); ok && fd == 1 {
			return true
		}
	}
	return false
}
