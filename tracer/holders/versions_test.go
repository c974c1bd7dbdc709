// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/holders/peek"
	"github.com/vramprof/vramprof/tracer/holders/pythontest"
)

var (
	lineNumber = regexp.MustCompile(`py:\d+\)`)
	numbers    = regexp.MustCompile(`[0-9]+`)
)

func TestEachVersionNamesWhatItHolds(t *testing.T) {
	programs := pythontest.Programs(t)
	if len(programs) == 0 {
		t.Skip("no Python")
	}
	for _, program := range programs {
		t.Run(filepath.Base(program), func(t *testing.T) {
			p := pythontest.Start(t, exec.Command(program, "../../testdata/holders/needles.py"))
			c := peek.NewCopy(p, DefaultMemory)
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
	for _, program := range pythontest.Programs(t) {
		t.Run(filepath.Base(program), func(t *testing.T) {
			p := pythontest.Start(t, exec.Command(program, "../../testdata/holders/lasting.py"))
			c := peek.NewCopy(p, DefaultMemory)
			defer c.Close()
			if err := c.Take(context.Background()); err != nil {
				t.Fatal(err)
			}
			checkNeedles(t, c, p)
		})
	}
}

// checkNeedles compares the paths that were found with those that the objects carry.
func checkNeedles(t *testing.T, c *peek.Copy, live peek.Memory) {
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
	t.Logf("Python %s: %d right, %d wrong; %d objects tracked, %d reached, %d bad reads", py.version, right, wrong, len(tracked), reached, c.Bad())
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
	image, err := peek.ReadImage(f)
	if err != nil {
		t.Fatal(err)
	}
	c := peek.NewCopy(image, DefaultMemory)
	defer c.Close()
	checkNeedles(t, c, nil)
}

// record writes the pages that the test reads, and no others.
func record(t *testing.T, program, file string) {
	t.Helper()
	p := pythontest.Start(t, exec.Command(program, "-I", "-S", "../../testdata/holders/needles.py"))
	whole := peek.NewCopy(p, DefaultMemory)
	defer whole.Close()
	const line = 192 // bytes that are kept around each read; all others become 0, so that the image is small
	kept := map[uint64]*peek.Page{}
	traced := peek.NewCopy(p, DefaultMemory)
	traced.Trace = func(address uint64) *peek.Page {
		from := whole.Page(address)
		if from == nil {
			return nil
		}
		to := kept[address>>peek.PageShift]
		if to == nil {
			to = new(peek.Page)
			kept[address>>peek.PageShift] = to
		}
		at := int(address % peek.PageSize &^ 63)
		copy(to[at:min(at+line, peek.PageSize)], from[at:])
		return from
	}
	checkNeedles(t, traced, nil)
	symbols, err := p.Symbols(peek.RuntimeSymbol, peek.VersionSymbol, peek.TypeSymbol)
	if err != nil {
		t.Fatal(err)
	}
	c := peek.NewCopy(&peek.Image{Mapped: p.Regions(), Named: symbols, Pages: kept}, DefaultMemory)
	defer c.Close()
	for number := range kept {
		c.U64(number << peek.PageShift)
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
		p := pythontest.Start(t, exec.Command(program, "../../testdata/holders/needles.py"))
		_, err := Walk(context.Background(), p, Options{})
		if !errors.Is(err, ErrPython) || !strings.Contains(err.Error(), "free-threaded") {
			t.Errorf("%s: %v", program, err)
		}
	}
}
