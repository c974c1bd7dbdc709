// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/output"
	"github.com/vramprof/vramprof/internal/session"
	"github.com/vramprof/vramprof/internal/untrusted"
)

// maxScreenLog and maxCommandTail bound what is kept for the time after the screen, in bytes.
const maxScreenLog, maxCommandTail = 64 << 10, 64 << 10

// Log keeps what is written to stderr while the terminal is a screen. It is safe for
// concurrent use.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer // at most maxScreenLog bytes
	left int          // bytes that were not kept
	last string       // line, until it was shown
}

// Write keeps text.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if room := maxScreenLog - l.text.Len(); len(b) <= room {
		l.text.Write(b)
	} else {
		l.left += len(b)
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	l.last = strings.TrimPrefix(lines[len(lines)-1], "vramprof: ")
	return len(b), nil
}

// note returns the last line that was written since the last call, "" for none.
func (l *Log) note() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := l.last
	l.last = ""
	return text
}

// PrintTo writes everything to w and forgets it.
func (l *Log) PrintTo(w io.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.text.WriteTo(w)
	if l.left > 0 {
		fmt.Fprintf(w, "vramprof: %d more bytes of messages were not kept\n", l.left)
		l.left = 0
	}
}

// commandOutput is the file without a name that has what a command writes while the terminal is a
// screen. The command may outlive vramprof, so it is not a pipe.
type commandOutput struct{ file *os.File }

// keepOutput gives the command, if there is one, no input and a file for its output.
func keepOutput(s *session.Session) (*commandOutput, error) {
	if len(s.Trace.Command) == 0 {
		return nil, nil
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	file, err := output.Temporary()
	if err != nil {
		null.Close()
		return nil, err
	}
	if _, err := unix.FcntlInt(file.Fd(), unix.F_SETFL, unix.O_APPEND); err != nil { // stdout and stderr share it
		return nil, fmt.Errorf("keep the output of %s: %w", untrusted.Clean(s.Trace.Command[0]), err)
	}
	s.Trace.Stdin, s.Trace.Stdout, s.Trace.Stderr = null, file, file
	return &commandOutput{file}, nil
}

// printTo writes the end of the output to w, from the begin of a line. A nil commandOutput has
// none.
func (o *commandOutput) printTo(w io.Writer) {
	if o == nil {
		return
	}
	defer o.file.Close()
	info, err := o.file.Stat()
	if err != nil || info.Size() == 0 {
		return
	}
	from := max(info.Size()-maxCommandTail, 0)
	tail := make([]byte, info.Size()-from)
	n, _ := o.file.ReadAt(tail, from)
	tail = tail[:n]
	if from > 0 {
		_, tail, _ = bytes.Cut(tail, []byte("\n"))
		fmt.Fprintf(w, "vramprof: the last %d of %d bytes that the command wrote:\n", len(tail), info.Size())
	}
	_, _ = w.Write(tail)
}
