// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// Limits of what is read of sources.
const (
	maxFiles    = 1 << 10
	maxFile     = 8 << 20 // bytes of a file
	maxLineText = 200     // bytes of a line that are kept
)

// sources reads lines of source files below one folder. A process chooses the paths of its frames,
// so that nothing else is read: no link leads out of the folder.
type sources struct {
	folder string // absolute; "": nothing is read
	files  map[string][]string
}

func newSources(folder string) *sources {
	return &sources{folder: folder, files: map[string][]string{}}
}

// line returns the line of a frame, without bytes.
func (s *sources) line(f *callstack.Frame) Line {
	x := Line{Function: frames.ShortName(f), Mark: f.Mark}
	if f.Mark {
		return x
	}
	x.Python, x.Line = f.Python, f.Line
	x.File = untrusted.Clean(f.File)
	if x.File == "" && f.Mapping != nil {
		x.File = untrusted.Clean(f.Mapping.Path)
	}
	path, ok := s.below(f.File)
	if !ok {
		return x
	}
	x.File = untrusted.Clean(path)
	if list := s.read(path); f.Line > 0 && f.Line <= len(list) {
		x.Text = list[f.Line-1]
	}
	return x
}

// below returns the path of a file relative to the folder. A relative path is one of the folder, in
// which the command was started.
func (s *sources) below(file string) (string, bool) {
	if s.folder == "" || file == "" || strings.HasPrefix(file, "<") {
		return "", false
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(s.folder, file)
	}
	path, err := filepath.Rel(s.folder, filepath.Clean(file))
	return path, err == nil && filepath.IsLocal(path)
}

// script returns the first word of a command that is a file below the folder, "" if none is.
func (s *sources) script(command []string) string {
	for _, word := range command {
		if path, ok := s.below(word); ok {
			if x, err := os.Lstat(filepath.Join(s.folder, path)); err == nil && x.Mode().IsRegular() {
				return untrusted.Clean(path)
			}
		}
	}
	return ""
}

func (s *sources) read(path string) []string {
	list, ok := s.files[path]
	if ok || len(s.files) == maxFiles {
		return list
	}
	s.files[path] = nil
	f, err := untrusted.OpenIn(s.folder, path)
	if err != nil {
		return nil
	}
	defer f.Close()
	lines := bufio.NewScanner(io.LimitReader(f, maxFile))
	lines.Buffer(nil, maxFile)
	for lines.Scan() {
		list = append(list, lineText(lines.Text()))
	}
	s.files[path] = list
	return list
}

// lineText returns a line with one blank between its words, so that a change of its indentation is
// none.
func lineText(line string) string {
	text := strings.Join(strings.Fields(line), " ")
	if len(text) > maxLineText {
		text = strings.ToValidUTF8(text[:maxLineText], "")
	}
	return untrusted.Clean(text)
}
