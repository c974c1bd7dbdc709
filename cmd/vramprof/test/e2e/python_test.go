// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	reportjson "github.com/vramprof/vramprof/report/json"
)

// call is one line of leak.py's own record.
type call struct {
	API, Kind string
	Size      int64
	Live      bool
	Stack     [][2]any // function and line, root first
}

// pythonFrame formats a frame for comparisons of reports and profiles.
func pythonFrame(function string, line any) string { return fmt.Sprintf("%s:%v", function, line) }

func parseCalls(t *testing.T, lines []string) books {
	t.Helper()
	b := books{}
	for _, line := range lines {
		var c call
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		parts := []string{c.API, c.Kind}
		for _, frame := range c.Stack {
			parts = append(parts, pythonFrame(frame[0].(string), frame[1]))
		}
		v := values{1, c.Size, 1, c.Size}
		if !c.Live {
			v[2], v[3] = 0, 0
		}
		b.add(strings.Join(parts, " "), v)
	}
	if len(b) < 5 {
		t.Fatalf("the program printed %q", lines)
	}
	return b
}

// pythonBooks returns the books of a profile by the frames of one script.
func pythonBooks(p *profile.Profile, script string) books {
	b := books{}
	for _, s := range p.Sample {
		parts := []string{label(s, "api"), label(s, "kind")}
		for i := len(s.Location) - 1; i >= 0; i-- {
			for k := len(s.Location[i].Line) - 1; k >= 0; k-- {
				line := s.Location[i].Line[k]
				if path.Base(line.Function.Filename) == script {
					parts = append(parts, pythonFrame(line.Function.Name, line.Line))
				}
			}
		}
		b.add(strings.Join(parts, " "), values(s.Value))
	}
	return b
}

// checkPythonStacks checks that stacks reach from a thread's root to the CUDA call, without frames
// of the interpreter's own code.
func checkPythonStacks(t *testing.T, p *profile.Profile) {
	t.Helper()
	for _, s := range p.Sample {
		for _, l := range s.Location {
			file := ""
			if l.Mapping != nil {
				file = path.Base(l.Mapping.File)
			}
			if strings.HasPrefix(file, "libpython") || strings.HasPrefix(file, "python3") {
				t.Errorf("%s of %s in %q", l.Line[0].Function.Name, file, rootFirst(s))
			}
			for _, line := range l.Line {
				if strings.HasPrefix(line.Function.Name, "[") {
					t.Errorf("a stack is not whole: %q", rootFirst(s))
				}
			}
		}
		if stack := rootFirst(s); stack[len(stack)-1] != label(s, "api") {
			t.Errorf("the leaf of %q is not %s", stack, label(s, "api"))
		}
	}
}

// checkHeadlines checks that each site is named after the calling line of leak.py, not after the
// interpreter or ctypes.
func checkHeadlines(t *testing.T, r *reportjson.LeaksReport, script string) {
	t.Helper()
	if len(r.Sites) == 0 {
		t.Error("no sites")
	}
	for _, site := range r.Sites {
		f := site.Stack[site.Headline]
		want := map[string]string{"cudaMalloc": "device_malloc", "cudaHostAlloc": "pinned_buffer", "cudaMallocManaged": "managed_table"}[site.API]
		if f.Function != want || path.Base(f.File) != script || f.Language != "python" || f.Line == 0 {
			t.Errorf("headline of %s: %+v, want a line of %s in %s", site.API, f, want, script)
		}
	}
}

// tracePython attaches to leak.py while it runs, and compares the profile and the leaks of the
// capture with its own record.
func tracePython(t *testing.T, env []string, program *target) {
	t.Helper()
	program.expectReady()
	capture := filepath.Join(t.TempDir(), "run.vram")
	s := start(t, env, "record", "-o", capture, "-p", fmt.Sprint(program.pid())).ready()
	program.next()
	want := parseCalls(t, program.until("done"))
	s.stop()
	program.end()
	p, r := profileOf(t, capture), leaksOf(t, capture)

	pythonBooks(p, "leak.py").compare(t, want)
	checkPythonStacks(t, p)
	checkHeadlines(t, r, "leak.py")
	checkNoLosses(t, r)
}

func TestProfileOfRunningPythonEqualsItsAllocations(t *testing.T) {
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	tracePython(t, env, startTarget(t, env, "/usr/bin/python3", dir.Program("leak.py"), "--stdin", "--threads", "8"))
}

// The command lives for a second after its calls: see "The last moments of Python programs" in
// docs/limits.md.
func TestRecordedPythonCommandLosesNoStack(t *testing.T) {
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	command := func(out string) []string {
		return []string{"sh", "-c", `(echo; sleep 1) | exec /usr/bin/python3 "$1" --stdin --threads 8 >"$2"`, "sh", dir.Program("leak.py"), out}
	}
	out := writeFile(t, "calls", "")
	p := record(t, env, command(out)...)
	pythonBooks(p, "leak.py").compare(t, parseCalls(t, callLines(t, out)))
	checkPythonStacks(t, p)

	r := leaks(t, env, command(writeFile(t, "calls", ""))...)
	checkNoLosses(t, r)
	checkHeadlines(t, r, "leak.py")
}

// callLines reads what leak.py wrote to a file between "ready" and "done".
func callLines(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) < 3 || lines[len(lines)-1] != "done" {
		t.Fatalf("the program printed %q", text)
	}
	return lines[1 : len(lines)-1]
}
