// SPDX-License-Identifier: Apache-2.0

package leaks

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// program is a program of the corpus, with its author's expectations.
type program struct {
	Name      string // "loss_list.py"
	Leaking   bool
	Lines     []int  // lines in its own file that allocate leaked memory
	Frames    string // the same for stacks without a line of the program: a regular expression for functions
	Library   string // C source of a library that it loads
	Processes int    // each prints "ready" and "done"
	Devices   int
	Early     bool // attach to it before it starts: what matters happens early
}

func (p *program) isC() bool { return strings.HasSuffix(p.Name, ".c") }

// root is the repository's folder.
var root = func() string {
	_, self, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(self), "..", "..", "..", "..")
}()

func corpusFile(name string) string { return filepath.Join(root, "testdata", "leaks", name) }

// corpus reads the headers of all programs that have a verdict.
func corpus(t *testing.T) (list []*program) {
	t.Helper()
	files, err := os.ReadDir(corpusFile(""))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if ext := filepath.Ext(f.Name()); ext != ".py" && ext != ".c" {
			continue
		}
		p, err := readProgram(f.Name())
		if err != nil {
			t.Errorf("%s: %v", f.Name(), err)
		} else if p != nil {
			list = append(list, p)
		}
	}
	return list
}

// header matches a line "# KEY: VALUE" in Python, "// KEY: VALUE" in C.
var header = regexp.MustCompile(`^(?:#|//) (verdict|attach|frames|library|processes|devices): (.+)$`)

// readProgram returns nil for a file that is not one of the programs.
func readProgram(name string) (*program, error) {
	f, err := os.Open(corpusFile(name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p, verdict := &program{Name: name, Processes: 1, Devices: 1}, ""
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if strings.HasSuffix(line, "# site: leak") || strings.HasSuffix(line, "// site: leak") {
			p.Lines = append(p.Lines, n)
		}
		m := header.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		switch m[1] {
		case "verdict":
			verdict = m[2]
		case "attach":
			p.Early = m[2] == "early"
		case "frames":
			p.Frames = m[2]
			_, err = regexp.Compile(m[2])
		case "library":
			p.Library = m[2]
		case "processes":
			p.Processes, err = strconv.Atoi(m[2])
		case "devices":
			p.Devices, err = strconv.Atoi(m[2])
		}
		if err != nil {
			return nil, err
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	p.Leaking = verdict == "leaking"
	switch {
	case verdict == "" && len(p.Lines) == 0:
		return nil, nil
	case verdict != "leaking" && verdict != "none":
		return nil, fmt.Errorf("verdict %q, want leaking or none", verdict)
	case p.Leaking != (len(p.Lines) > 0 || p.Frames != ""):
		return nil, fmt.Errorf("verdict %q, but %d leaking lines and frames %q", verdict, len(p.Lines), p.Frames)
	}
	return p, nil
}

// TestCorpusIsBalanced checks that there is enough of both kinds for meaningful figures.
func TestCorpusIsBalanced(t *testing.T) {
	list := corpus(t)
	leaking, inC := 0, 0
	for _, p := range list {
		if p.Leaking {
			leaking++
		}
		if p.isC() {
			inC++
		}
	}
	if n := len(list); n < 32 || leaking < 2*n/5 || leaking > 3*n/5 || inC > n/2 || inC < 6 {
		t.Errorf("%d programs, %d of them leaking, %d in C", n, leaking, inC)
	}
	if !slices.IsSortedFunc(list, func(a, b *program) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the programs are not in order")
	}
}
