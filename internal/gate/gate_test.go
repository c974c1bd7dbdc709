// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/symbolize/callstack"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// code returns lines of train.py, "function:line:MiB:text".
func code(lines ...string) (list []Line) {
	for _, text := range lines {
		f := strings.SplitN(text, ":", 4)
		l := Line{Function: f[0], File: "src/train.py", Python: true, Text: f[3]}
		_, _ = fmt.Sscan(f[1], &l.Line)
		_, _ = fmt.Sscan(f[2], &l.Bytes)
		l.Bytes <<= 20
		list = append(list, l)
	}
	return list
}

func text(list []Change) (texts []string) {
	for i := range list {
		c := &list[i]
		texts = append(texts, fmt.Sprintf("%s:%d<%d %d→%d %s", c.Function, c.Line.Line, c.Old, c.Before>>20, c.Bytes>>20, c.Text))
	}
	slices.Sort(texts)
	return texts
}

func TestLinesAreMatchedByFunctionAndText(t *testing.T) {
	for _, c := range []struct {
		name        string
		before, now []Line
		want        []string
	}{
		{"moved", code("f:10:5:a = x()", "f:12:7:b = y()"), code("f:20:5:a = x()", "f:22:8:b = y()"),
			[]string{"f:20<10 5→5 a = x()", "f:22<12 7→8 b = y()"}},
		{"moved past each other", code("f:10:5:a = x()", "f:12:7:b = y()"), code("f:12:5:a = x()", "f:10:7:b = y()"),
			[]string{"f:10<12 7→7 b = y()", "f:12<10 5→5 a = x()"}},
		{"onto the number of another", code("f:10:5:a = x()", "f:11:7:b = y()"), code("f:11:5:a = x()", "f:12:7:b = y()"),
			[]string{"f:11<10 5→5 a = x()", "f:12<11 7→7 b = y()"}},
		{"one added above", code("f:10:5:a = x()"), code("f:10:3:new()", "f:11:5:a = x()"),
			[]string{"f:10<0 0→3 new()", "f:11<10 5→5 a = x()"}},
		{"one gone", code("f:10:5:a = x()", "f:11:7:b = y()"), code("f:10:7:b = y()"),
			[]string{"f:10<11 7→7 b = y()", "f:10<0 5→0 a = x()"}},
		{"equal texts in their order", code("f:10:5:a = x()", "f:12:7:a = x()"), code("f:20:6:a = x()", "f:22:7:a = x()"),
			[]string{"f:20<10 5→6 a = x()", "f:22<12 7→7 a = x()"}},
		{"the only line changed", code("f:10:5:a = x(1)"), code("f:12:9:a = x(2)"), []string{"f:12<10 5→9 a = x(2)"}},
		{"another function", code("f:10:5:a = x()"), code("g:10:5:a = x()"), []string{"f:10<0 5→0 a = x()", "g:10<0 0→5 a = x()"}},
		{"without texts: the same numbers", code("f:10:5:", "f:12:7:"), code("f:10:5:a = x()", "f:12:8:b = y()"),
			[]string{"f:10<0 5→5 a = x()", "f:12<0 7→8 b = y()"}},
		{"without texts: in their order", code("f:10:5:", "f:12:7:"), code("f:20:5:a = x()", "f:22:8:b = y()"),
			[]string{"f:20<10 5→5 a = x()", "f:22<12 7→8 b = y()"}},
		{"without texts: not to be told", code("f:10:5:", "f:12:7:"), code("f:20:5:a = x()", "f:22:8:b = y()", "f:24:1:c = z()"),
			[]string{"f:0<0 12→14 "}},
	} {
		got := text(align(c.before, c.now))
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
	marks := []Line{{Function: "[pytorch cache]", Mark: true, Bytes: 3 << 20}}
	if got := text(align(marks, marks)); !slices.Equal(got, []string{"[pytorch cache]:0<0 3→3 "}) {
		t.Errorf("memory without a line: %q", got)
	}
}

const gib = 1 << 30

func TestVerdicts(t *testing.T) {
	before := func() *Measurement { return &Measurement{Peak: 10 * gib, Runs: 1} }
	for _, c := range []struct {
		name   string
		now    Measurement
		before *Measurement
		o      Options
		why    []string
		want   Verdict
	}{
		{"within the budget", Measurement{Usage: 22 * gib, Least: 22 * gib}, nil, Options{Budget: 22 * gib}, nil, Good},
		{"a byte more", Measurement{Usage: 22*gib + 1, Least: 22*gib + 1}, nil, Options{Budget: 22 * gib}, nil, Bad},
		{"processes whose peaks may not have met", Measurement{Usage: 23 * gib, Least: 12 * gib}, nil, Options{Budget: 22 * gib}, nil, Unknown},
		{"one of them alone", Measurement{Usage: 33 * gib, Least: 23 * gib}, nil, Options{Budget: 22 * gib}, nil, Bad},
		{"the tolerance itself", Measurement{Peak: 10*gib + 512*1024*1024}, before(), Options{Tolerance: Tolerance{Share: 0.05}}, nil, Good},
		{"more than the tolerance", Measurement{Peak: 10*gib + 513*1024*1024}, before(), Options{Tolerance: Tolerance{Share: 0.05}}, nil, Bad},
		{"a tolerance of bytes", Measurement{Peak: 10*gib + 5}, before(), Options{Tolerance: Tolerance{Bytes: 4}}, nil, Bad},
		{"less", Measurement{Peak: gib}, before(), Options{}, nil, Good},
		{"within the noise", Measurement{Peak: 11 * gib, Noise: gib}, before(), Options{}, nil, Good},
		{"within that of the baseline", Measurement{Peak: 11 * gib}, &Measurement{Peak: 10 * gib, Noise: gib}, Options{}, nil, Good},
		{"more than the noise", Measurement{Peak: 11*gib + 1, Noise: gib}, before(), Options{}, nil, Bad},
		{"cut short", Measurement{Peak: 9 * gib}, before(), Options{}, []string{"lost"}, Unknown},
		{"cut short, and too much already", Measurement{Peak: 12 * gib}, before(), Options{}, []string{"lost"}, Bad},
	} {
		r := &Result{Verdict: Good, Now: &c.now, Before: c.before, Budget: c.o.Budget, Why: c.why, EachLine: c.o.EachLine}
		if r.judge(c.o); r.Verdict != c.want {
			t.Errorf("%s: %s, want %s", c.name, r.Verdict, c.want)
		}
	}
}

func TestALineThatGrewIsBadOnlyWhereEachLineCounts(t *testing.T) {
	for each, want := range map[bool]Verdict{false: Good, true: Bad} {
		r := &Result{Verdict: Good, EachLine: each, Before: &Measurement{Peak: 12 << 20, Lines: code("f:1:5:a", "f:2:7:b")},
			Now: &Measurement{Peak: 12 << 20, Lines: code("f:1:7:a", "f:2:5:b")}}
		if r.judge(Options{Tolerance: Tolerance{Share: 0.01}}); r.Verdict != want || r.Grew != 1 || r.Lines[0].Text != "a" {
			t.Errorf("each line %v: %s, %+v", each, r.Verdict, r.Lines)
		}
	}
	// Neither noise nor sampling is growth.
	for _, m := range []Measurement{{Error: 1 << 20}, {}} {
		m.Peak, m.Lines = 12<<20, code("f:1:7:a", "f:2:5:b")
		if m.Error == 0 {
			m.Lines[0].Noise = 2 << 20
		}
		r := &Result{Verdict: Good, EachLine: true, Before: &Measurement{Peak: 12 << 20, Lines: code("f:1:5:a", "f:2:7:b")}, Now: &m}
		if r.judge(Options{}); r.Grew != 0 {
			t.Errorf("%+v: %+v grew", m, r.Lines[0])
		}
	}
}

func TestRunsAreCombinedToTheirMedian(t *testing.T) {
	var runs []*Measurement
	for i, mib := range []uint64{7, 5, 9} {
		m := &Measurement{Peak: mib << 20, Usage: mib << 21, Runs: 1, Lines: code("f:1:" + fmt.Sprint(mib) + ":a")}
		if i == 2 {
			m.Lines = append(m.Lines, code("f:2:1:b")...)
		}
		runs = append(runs, m)
	}
	got := combine(runs)
	if got.Peak != 7<<20 || got.Noise != 4<<20 || got.Usage != 18<<20 || got.Runs != 3 || len(got.Lines) != 2 {
		t.Fatalf("combined %+v", *got)
	}
	if a, b := got.Lines[0], got.Lines[1]; a.Bytes != 7<<20 || a.Noise != 4<<20 || b.Bytes != 0 || b.Noise != 1<<20 {
		t.Errorf("lines %+v", got.Lines)
	}
}

// golden is a result with all that the formats have.
func golden(o Options) *Result {
	r := &Result{Verdict: Good, Command: "python3 src/train.py \x1b[31m<&>", Budget: 22 * gib, EachLine: o.EachLine, Tool: "vramprof v1.2.3",
		Before: &Measurement{Peak: 20 * gib, Usage: 20 * gib, Runs: 3, Noise: 3 << 20, Lines: code("forward:88:4096:x = torch.empty(n, n)", "backward:120:16384:loss.backward()")},
		Now:    &Measurement{Peak: 23 * gib, Usage: 23 * gib, Least: 23 * gib, Processes: 1, Runs: 1, Lines: code("forward:90:7168:x = torch.empty(n, n)", "backward:122:16384:loss.backward()")}}
	r.Now.Lines = append(r.Now.Lines, Line{Function: "[pytorch cache]", Mark: true, Bytes: 1 << 20}, Line{Function: "init", File: "/opt/lib/x.py", Line: 4, Python: true, Bytes: 2 << 20})
	r.judge(o)
	return r
}

func TestGoldenFiles(t *testing.T) {
	unknown := golden(Options{Tolerance: Tolerance{Share: 0.5}, Budget: 30 * gib})
	unknown.Why, unknown.Verdict, unknown.Budget = []string{"the command ended with status 3"}, Unknown, 30*gib
	for name, write := range map[string]func(io.Writer) error{
		"junit.xml":         golden(Options{Tolerance: Tolerance{Share: 0.01}, Budget: 22 * gib}).WriteJUnit,
		"sarif.json":        golden(Options{Tolerance: Tolerance{Share: 0.01}, Budget: 22 * gib}).WriteSARIF,
		"junit-unknown.xml": unknown.WriteJUnit, "sarif-unknown.json": unknown.WriteSARIF,
		"report-44.txt":  func(w io.Writer) error { return golden(Options{Budget: 22 * gib}).WriteText(w, 44) },
		"report-80.txt":  func(w io.Writer) error { return golden(Options{Budget: 22 * gib}).WriteText(w, 80) },
		"report-120.txt": func(w io.Writer) error { return unknown.WriteText(w, 120) },
	} {
		var out bytes.Buffer
		if err := write(&out); err != nil {
			t.Fatal(err)
		}
		if bytes.ContainsRune(out.Bytes(), 0x1b) {
			t.Errorf("%s has a control character", name)
		}
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(path); err != nil || !bytes.Equal(want, out.Bytes()) {
			t.Errorf("%s differs (%v): go test ./internal/gate -update writes it\n%s", name, err, out.String())
		}
		switch filepath.Ext(name) {
		case ".xml":
			var s junitSuites
			if err := xml.Unmarshal(out.Bytes(), &s); err != nil || s.Tests != len(s.Suite.Cases) || s.Tests == 0 {
				t.Errorf("%s: %d tests, %v", name, s.Tests, err)
			}
		case ".json":
			if err := json.Unmarshal(out.Bytes(), new(sarifLog)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// Code scanning refuses a whole file for one result without a physical location.
func TestEachResultHasALocation(t *testing.T) {
	library, own := Line{Function: "init", File: "/opt/lib/x.py", Line: 4, Bytes: 3 << 20}, code("f:1:9:a")
	for _, c := range []struct {
		name   string
		now    []Line
		script string
		want   string // places and notifications
	}{
		{"the library's line grew: at the own line that holds most", append([]Line{library}, own...), "test.py", "line src/train.py:1 /opt/lib/x.py:4 init holds"},
		{"no own line: at the script", []Line{library}, "test.py", "line test.py:0 /opt/lib/x.py:4 init holds"},
		{"no file of the sources", []Line{library}, "", "warning: /opt/lib/x.py:4 init holds"},
	} {
		r := &Result{Verdict: Good, Script: c.script, Before: &Measurement{Peak: 12 << 20, Lines: own}, Now: &Measurement{Peak: 12 << 20, Lines: c.now}}
		r.judge(Options{})
		var out bytes.Buffer
		var file sarifLog
		if err := r.WriteSARIF(&out); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out.Bytes(), &file); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, x := range file.Runs[0].Results {
			if len(x.Locations) != 1 {
				t.Fatalf("%s: a result without a location:\n%s", c.name, out.String())
			}
			at, line := x.Locations[0].Physical, 0
			if at.Region != nil {
				line = at.Region.Start
			}
			got = append(got, fmt.Sprintf("%s %s:%d %s", x.Rule, at.Artifact.URI, line, x.Message.Text))
		}
		for _, x := range file.Runs[0].Invocations[0].Notifications {
			got = append(got, x.Level+": "+x.Message.Text)
		}
		if len(got) != 1 || !strings.HasPrefix(got[0], c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestTheScriptOfACommandIsAFileOfTheSources(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "test.py"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{"python3 -u test.py --n 5": "test.py", "python3 " + folder + "/test.py": "test.py", "pytest": "", "/bin/sh ..": ""} {
		if got := newSources(folder).script(strings.Fields(command)); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}

func TestASavedBaselineIsReadAgain(t *testing.T) {
	r := golden(Options{})
	var out bytes.Buffer
	if err := r.Save(&out); err != nil {
		t.Fatal(err)
	}
	m, err := readSaved(bytes.NewReader(out.Bytes()))
	if err != nil || m.Peak != r.Now.Peak || !slices.Equal(m.Lines, r.Now.Lines) {
		t.Errorf("read %+v, %v", m, err)
	}
	for text, want := range map[string]string{
		"": errNotSaved.Error(), "VRAM\x00": errNotSaved.Error(), "{": "baseline: unexpected", `{"a": 1}`: "no baseline that", `{"kind": "vramprof ci baseline", "version": 2, "measurement": {}}`: "version is 2",
	} {
		if _, err := readSaved(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// A process chooses the paths of its frames, and a report shows what is read there.
func TestOnlySourcesBelowTheFolderAreRead(t *testing.T) {
	outside, folder := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{outside + "/secret": "secret", folder + "/a.py": "one\n\ttwo  words\x1b[31m\n" + strings.Repeat("é", 200)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(folder, "link")); err != nil {
		t.Fatal(err)
	}
	s := newSources(folder)
	for _, c := range []struct {
		file, want, text string
		line             int
	}{
		{folder + "/a.py", "a.py", "one", 1}, {"a.py", "a.py", "two words[31m", 2}, {"a.py", "a.py", strings.Repeat("é", 100), 3}, {"a.py", "a.py", "", 9}, {"a.py", "a.py", "", 0},
		{folder + "/link/secret", "link/secret", "", 1}, {outside + "/secret", outside + "/secret", "", 1}, {"../x", "../x", "", 1},
		{folder + "/../" + filepath.Base(outside) + "/secret", folder + "/../" + filepath.Base(outside) + "/secret", "", 1},
		{"<string>", "<string>", "", 1}, {folder, ".", "", 1}, {"", "", "", 1},
	} {
		got := s.line(&callstack.Frame{Function: "f", File: c.file, Line: c.line, Python: true})
		if got.File != c.want || got.Text != c.text {
			t.Errorf("%s:%d is %q %q, want %q %q", c.file, c.line, got.File, got.Text, c.want, c.text)
		}
	}
}
