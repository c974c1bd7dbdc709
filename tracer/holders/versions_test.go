// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pythons returns the programs to test, of all versions that the machine has: those in PATH, pyenv's
// and those that scripts/fetch-python.sh has unpacked.
func pythons(t *testing.T) (programs []string) {
	t.Helper()
	repository, _ := filepath.EvalSymlinks("../..")
	home, _ := os.UserHomeDir()
	for _, pattern := range []string{
		"/usr/bin/python3.[0-9]*", home + "/.pyenv/versions/3.*/bin/python3.[0-9]*", repository + "/.cache/python-3.1*/python3.1?",
	} {
		found, _ := filepath.Glob(pattern)
		for _, f := range found {
			if m := versionName.FindStringSubmatch(filepath.Base(f)); m != nil && slices.Contains(supported, m[1]) {
				programs = append(programs, f)
			}
		}
	}
	return programs
}

var (
	versionName = regexp.MustCompile(`^python3\.(\d+)$`)
	supported   = []string{"8", "9", "10", "11", "12", "13", "14"}
	lineNumber  = regexp.MustCompile(`py:\d+\)`)
	numbers     = regexp.MustCompile(`[0-9]+`)
)

// start runs a job that prints "ready" and waits for its input to end.
// awaitInput waits until a thread of a job that has printed its line waits for input, at most for some
// seconds: a job that trains does not wait.
func awaitInput(pid int) {
	for range 30 {
		time.Sleep(100 * time.Millisecond)
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
		for _, name := range threads {
			if text, _ := os.ReadFile(name); strings.HasPrefix(string(text), fmt.Sprintf("%d 0x0 ", unix.SYS_READ)) {
				return
			}
		}
	}
}

func start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var complaints strings.Builder
	cmd.Stderr = &complaints
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	lines := bufio.NewReader(out)
	line, _ := lines.ReadString('\n')
	for i := 0; i < 20 && strings.HasPrefix(line, "["); i++ { // messages of gloo
		line, _ = lines.ReadString('\n')
	}
	if !strings.HasPrefix(line, "ready") {
		t.Fatalf("the job printed %q\n%s", line, complaints.String())
	}
	awaitInput(cmd.Process.Pid)
	p, err := Open(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func TestEachVersionNamesWhatItHolds(t *testing.T) {
	programs := pythons(t)
	if len(programs) == 0 {
		t.Skip("no Python")
	}
	for _, program := range programs {
		t.Run(filepath.Base(program), func(t *testing.T) {
			p := start(t, exec.Command(program, "../../testdata/holders/needles.py"))
			c := NewCopy(p, DefaultMemory)
			defer c.Close()
			if err := c.Take(context.Background()); err != nil {
				t.Fatal(err)
			}
			checkNeedles(t, c, p)
		})
	}
}

// What keeps memory forever comes before what passes.
func TestLastingHoldersComeBeforeThoseThatPass(t *testing.T) {
	for _, program := range pythons(t) {
		t.Run(filepath.Base(program), func(t *testing.T) {
			p := start(t, exec.Command(program, "../../testdata/holders/lasting.py"))
			c := NewCopy(p, DefaultMemory)
			defer c.Close()
			if err := c.Take(context.Background()); err != nil {
				t.Fatal(err)
			}
			checkNeedles(t, c, p)
		})
	}
}

// checkNeedles compares the paths that were found with those that the objects carry.
func checkNeedles(t *testing.T, c *Copy, live Memory) {
	t.Helper()
	py, err := newPython(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	s := newSearch(py, DefaultObjects)
	tracked, broken := py.collected(DefaultObjects)
	if broken > 0 {
		t.Errorf("%d lists of the collector are broken", broken)
	}
	if on := py.automatic(); on != AutomaticOff {
		t.Errorf("the collector is %d, the job has switched it off", on)
	}
	roots := newRootFinder(s, privacy{})
	threads, broken := roots.run(live)
	if threads < 2 || broken > 0 {
		t.Errorf("%d threads, %d broken", threads, broken)
	}
	s.expandAll()
	reached := len(s.nodes)
	finder := &looseFinder{search: s, native: map[int]int32{}}
	loose := finder.looseOf(tracked)
	finder.enterAll(&loose)
	n := newNamer(s, roots)
	right, wrong := 0, 0
	for _, a := range tracked {
		if typ := py.typeOf(a); typ.name != "Needle" {
			continue
		}
		want := needlePath(py, a)
		if py.l.minor <= 10 { // code has no qualified name yet
			want = strings.Replace(want, "outer.<locals>.inner()", "inner()", 1)
		}
		got := "not found"
		if i, known := s.index.get(a); known {
			got = lineNumber.ReplaceAllString(n.holder(i).String(), "py:LINE)")
		}
		if got == want {
			right++
		} else {
			wrong++
			if wrong < 30 {
				t.Errorf("%s: found as %s", want, got)
			}
		}
	}
	t.Logf("Python %s: %d right, %d wrong; %d objects tracked, %d reached, %d bad reads", py.version, right, wrong, len(tracked), reached, c.bad)
}

// needlePath reads the attribute of a Needle that has its path.
func needlePath(py *python, a uint64) (path string) {
	dict, keys, values := py.attributes(a, py.typeOf(a))
	visit := func(key, value uint64) {
		if py.str(key) == "path" {
			path = py.str(value)
		}
	}
	if dict != 0 {
		py.eachItem(dict, visit)
	} else {
		py.eachKey(keys, values, visit)
	}
	return path
}

// TestRecordedImage reads the memory of Python 3.13 as it was recorded by
// VRAMPROF_RECORD=PROGRAM go test -run TestRecordedImage.
func TestRecordedImage(t *testing.T) {
	const file = "testdata/needles-3.13.image"
	if program := os.Getenv("VRAMPROF_RECORD"); program != "" {
		record(t, program, file)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	image, err := ReadImage(f)
	if err != nil {
		t.Fatal(err)
	}
	c := NewCopy(image, DefaultMemory)
	defer c.Close()
	checkNeedles(t, c, nil)
}

// record writes the pages that the test reads, and no others.
func record(t *testing.T, program, file string) {
	t.Helper()
	p := start(t, exec.Command(program, "-I", "-S", "../../testdata/holders/needles.py"))
	whole, c := NewCopy(p, DefaultMemory), NewCopy(p, DefaultMemory)
	defer whole.Close()
	defer c.Close()
	const line = 192 // bytes that are kept around each read; all others become 0, so that the image is small
	kept := map[uint64]*page{}
	traced := NewCopy(p, DefaultMemory)
	traced.trace = func(address uint64) *page {
		from := whole.page(address)
		if from == nil {
			return nil
		}
		to := kept[address>>pageShift]
		if to == nil {
			to = new(page)
			kept[address>>pageShift] = to
		}
		at := int(address % pageSize &^ 63)
		copy(to[at:min(at+line, pageSize)], from[at:])
		return from
	}
	checkNeedles(t, traced, nil)
	for number, p := range kept {
		c.set(number<<pageShift, p)
	}
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := c.Record(f); err != nil {
		t.Fatal(err)
	}
}

// TestFreeThreadedBuildIsRefused runs the builds that scripts/build-python.sh has made.
func TestFreeThreadedBuildIsRefused(t *testing.T) {
	programs, _ := filepath.Glob("../../.cache/python-3.1*t/bin/python3.1?t")
	if len(programs) == 0 {
		t.Skip("no free-threaded build")
	}
	for _, program := range programs {
		p := start(t, exec.Command(program, "../../testdata/holders/needles.py"))
		_, err := Walk(context.Background(), p, Options{})
		if !errors.Is(err, ErrPython) || !strings.Contains(err.Error(), "free-threaded") {
			t.Errorf("%s: %v", program, err)
		}
	}
}
