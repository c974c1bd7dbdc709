// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"sync"

	"github.com/vramprof/vramprof/internal/untrusted"
)

// newLog returns a log of JSON, one object per line, and what logs lines for a person in it.
func newLog(stderr io.Writer) (*slog.Logger, io.Writer) {
	level := slog.LevelInfo
	log := slog.New(slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: level}))
	return log, &logLines{log: log}
}

// logLines logs lines that are written for a person: "vramprof: the driver did not answer".
type logLines struct {
	log *slog.Logger

	mu   sync.Mutex
	rest []byte // of a line without its end
}

var _ io.Writer = (*logLines)(nil)

// maxLogLine is the most bytes of a line; the rest becomes the next one.
const maxLogLine = 16 << 10

func (l *logLines) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, text...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole && len(l.rest) < maxLogLine {
			return len(text), nil
		}
		l.rest = append([]byte(nil), rest...)
		if message := strings.TrimPrefix(untrusted.Clean(string(line)), "vramprof: "); message != "" {
			l.log.Info(message)
		}
	}
}
