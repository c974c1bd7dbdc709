// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"
)

// Wipe clears the terminal's current line.
const Wipe = "\r\x1b[K"

// redraw is how often a line is looked at, which is redrawn if its text has changed.
const redraw = 100 * time.Millisecond

// line is the last line of a terminal, which shows what is awaited while nothing else is written.
type line struct {
	out   io.Writer
	width int // at most so many columns, so that it does not wrap

	drawing sync.Mutex // comes before mu; texts are asked for with it

	mu      sync.Mutex // guards what follows, and out
	waits   []*wait    // the last one is shown
	shown   string
	written time.Time // when the user last saw something new
	partial bool      // the line has text of somebody else
	stop    chan struct{}
}

// wait is what is awaited.
type wait struct {
	begin time.Time
	after time.Duration // the user has seen nothing new for so long before it shows
	text  func(since time.Duration) string
}

// Shared returns stdout and stderr so that what is written to them never mixes with the line that
// shows what is awaited. A file that is no terminal is returned as it is.
func Shared(stdout, stderr io.Writer) (out, errors io.Writer) {
	f, ok := stderr.(*os.File)
	if !ok || !Is(f) {
		return stdout, stderr
	}
	l := &line{out: f, width: LineWidth(f)}
	if o, ok := stdout.(*os.File); ok && Is(o) {
		stdout = &shared{o, l}
	}
	return stdout, &shared{f, l}
}

// shared is a terminal whose last line may show what is awaited.
type shared struct {
	file *os.File
	line *line
}

func (s *shared) Write(p []byte) (int, error) {
	s.line.mu.Lock()
	defer s.line.mu.Unlock()
	s.line.show("")
	s.line.written, s.line.partial = time.Now(), !bytes.HasSuffix(p, []byte("\n"))
	return s.file.Write(p)
}

// File returns the file that w writes to, for a program that shall have the terminal; w itself if
// it is none.
func File(w io.Writer) io.Writer {
	if s, ok := w.(*shared); ok {
		return s.file
	}
	return w
}

// Plain returns w as a writer that is no terminal.
func Plain(w io.Writer) io.Writer { return struct{ io.Writer }{w} }

// lineOf returns the line of a terminal, nil elsewhere.
func lineOf(w io.Writer) *line {
	if s, ok := w.(*shared); ok {
		return s.line
	}
	if !Is(w) {
		return nil
	}
	return &line{out: w, width: LineWidth(w)}
}

// await shows a text until end is called, which clears it. What was awaited before shows again
// after another pause. A text "" shows nothing, and neither what was awaited before.
func (l *line) await(after time.Duration, text func(since time.Duration) string) (end func()) {
	w := &wait{time.Now(), after, text}
	l.mu.Lock()
	if l.waits = append(l.waits, w); len(l.waits) == 1 {
		l.written, l.stop = w.begin, make(chan struct{})
		go l.follow(l.stop)
	}
	l.mu.Unlock()
	l.refresh()
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.waits = slices.DeleteFunc(l.waits, func(x *wait) bool { return x == w })
		l.show("")
		if l.written = time.Now(); len(l.waits) == 0 {
			close(l.stop)
		}
	})
}

// follow redraws the line until nothing is awaited.
func (l *line) follow(stop chan struct{}) {
	tick := time.NewTicker(redraw)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			l.refresh()
		}
	}
}

// refresh redraws the line. Texts are asked for without mu, which whoever writes holds.
func (l *line) refresh() {
	l.drawing.Lock()
	defer l.drawing.Unlock()
	l.mu.Lock()
	last := l.last()
	l.mu.Unlock()
	if last == nil {
		return
	}
	text := last.text(time.Since(last.begin))
	l.mu.Lock()
	defer l.mu.Unlock()
	if last == l.last() && !l.partial && (l.shown != "" || time.Since(l.written) >= last.after) {
		l.show(text)
	}
}

func (l *line) last() *wait {
	if len(l.waits) == 0 {
		return nil
	}
	return l.waits[len(l.waits)-1]
}

func (l *line) show(text string) {
	if r := []rune(text); len(r) > l.width {
		text = string(r[:max(l.width-1, 0)]) + "…"
	}
	if text != l.shown {
		l.shown = text
		fmt.Fprint(l.out, Wipe, text)
	}
}
