// SPDX-License-Identifier: Apache-2.0

package leaks

import (
	"bufio"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
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
	Folder    string
	Keeper    string // what keeps the memory, where that is far from what allocates it
	Holder    string // the path that keeps leaked memory, by its author; "": not stated
}

func (p *program) isC() bool { return strings.HasSuffix(p.Name, ".c") }

// root is the repository's folder.
var root = func() string {
	_, self, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(self), "..", "..", "..", "..")
}()

func corpusFile(name string) string { return filepath.Join(root, "testdata", "leaks", name) }

// threads is the folder of the programs that follow threads of users.
const threads = "threads"

// Sets of programs. Thresholds of the verdict may be chosen by the first two, never by the third.
const (
	older    = "older"
	forWork  = "threads, half 0"
	forCheck = "threads, half 1"
)

// set returns the set of a program. A checksum of its name halves the threads.
func (p *program) set() string {
	switch {
	case p.Folder == "":
		return older
	case crc32.ChecksumIEEE([]byte(p.Name))%2 == 0:
		return forWork
	}
	return forCheck
}

func (p *program) file() string { return corpusFile(filepath.Join(p.Folder, p.Name)) }

// corpus reads the headers of all programs that have a verdict.
func corpus(t *testing.T) (list []*program) {
	t.Helper()
	for _, folder := range []string{"", threads} {
		files, err := os.ReadDir(corpusFile(folder))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if ext := filepath.Ext(f.Name()); ext != ".py" && ext != ".c" {
				continue
			}
			p := &program{Name: f.Name(), Folder: folder, Processes: 1, Devices: 1}
			if hasVerdict, err := p.read(); err != nil {
				t.Errorf("%s: %v", f.Name(), err)
			} else if hasVerdict {
				list = append(list, p)
			}
		}
	}
	return list
}

// header matches a line "# KEY: VALUE" in Python, "// KEY: VALUE" in C.
var header = regexp.MustCompile(`^(?:#|//) (verdict|attach|frames|library|processes|devices|keeper|holder): (.+)$`)

// read reads the program's header; a file without a verdict is not one of the programs.
func (p *program) read() (hasVerdict bool, err error) {
	f, err := os.Open(p.file())
	if err != nil {
		return false, err
	}
	defer f.Close()
	verdict := ""
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
		case "keeper":
			p.Keeper = m[2]
		case "holder":
			p.Holder = m[2]
		case "library":
			p.Library = m[2]
		case "processes":
			p.Processes, err = strconv.Atoi(m[2])
		case "devices":
			p.Devices, err = strconv.Atoi(m[2])
		}
		if err != nil {
			return false, err
		}
	}
	if err := lines.Err(); err != nil {
		return false, err
	}
	p.Leaking = verdict == "leaking"
	switch {
	case verdict == "" && len(p.Lines) == 0:
		return false, nil
	case verdict != "leaking" && verdict != "none":
		return false, fmt.Errorf("verdict %q, want leaking or none", verdict)
	case p.Leaking != (len(p.Lines) > 0 || p.Frames != ""):
		return false, fmt.Errorf("verdict %q, but %d leaking lines and frames %q", verdict, len(p.Lines), p.Frames)
	}
	return true, nil
}

// row returns the beginning of the program's row in the table of threads.
func (p *program) row() string {
	verdict, holder := "none", ""
	if p.Leaking {
		verdict = "leaking"
	}
	if p.Holder != "" {
		holder = "`" + p.Holder + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |", p.Name, verdict, p.Keeper, holder)
}

// TestCorpusIsBalanced checks that each set has enough of both kinds for meaningful figures, and
// that enough programs keep memory far from where they allocate it.
func TestCorpusIsBalanced(t *testing.T) {
	type counts struct{ programs, leaking, inC, far int }
	sets, names := map[string]counts{}, map[string]bool{}
	table, err := os.ReadFile(corpusFile(filepath.Join(threads, "README.md")))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range corpus(t) {
		c := sets[p.set()]
		c.programs++
		if p.Leaking {
			c.leaking++
		}
		if p.isC() {
			c.inC++
		}
		if p.Keeper != "" {
			c.far++
		}
		sets[p.set()] = c
		if names[p.Name] {
			t.Errorf("two programs are called %s", p.Name)
		}
		names[p.Name] = true
		if p.Folder == threads && p.Leaking && !p.isC() && p.Holder == "" {
			t.Errorf("%s: who holds what leaks?", p.Name)
		}
		if row := p.row(); p.Folder == threads && !strings.Contains(string(table), row) {
			t.Errorf("the table lacks the row %q", row)
		}
	}
	for set, c := range sets {
		if c.programs < 20 || c.leaking < 2*c.programs/5 || c.leaking > 3*c.programs/5 || c.inC > c.programs/2 {
			t.Errorf("%s: %+v", set, c)
		}
		if set != older && c.far < 10 {
			t.Errorf("%s: only %d programs keep memory far from where they allocate it", set, c.far)
		}
	}
}
