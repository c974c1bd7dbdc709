// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(got, want) {
		return
	}
	g, w := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(g), len(w)) {
		if i >= len(g) || i >= len(w) || g[i] != w[i] {
			t.Fatalf("%s differs from line %d (rewrite with -update if that is right); got:\n%s", name, i+1, strings.Join(g[min(i, len(g)):], "\n"))
		}
	}
}

func TestText(t *testing.T) {
	for _, width := range []int{80, 120} {
		t.Run(fmt.Sprintf("leaks%d", width), func(t *testing.T) {
			var b bytes.Buffer
			if err := WriteLeaks(&b, testSnapshot(), testStacks(), Options{}, Screen{Width: width}); err != nil {
				t.Fatal(err)
			}
			checkText(t, b.String(), width)
			golden(t, fmt.Sprintf("leaks%d.txt", width), b.Bytes())
		})
		t.Run(fmt.Sprintf("summary%d", width), func(t *testing.T) {
			var b bytes.Buffer
			if err := WriteSummary(&b, testSnapshot(), testStacks(), Options{Top: 3}, Screen{Width: width}); err != nil {
				t.Fatal(err)
			}
			checkText(t, b.String(), width)
			golden(t, fmt.Sprintf("summary%d.txt", width), b.Bytes())
		})
	}
}

// checkText: nothing that a terminal would obey, no line too wide.
func checkText(t *testing.T, text string, width int) {
	t.Helper()
	for i, line := range strings.Split(text, "\n") {
		if n := columns(line); n > width {
			t.Errorf("line %d has %d columns, want at most %d: %s", i+1, n, width, line)
		}
		if strings.HasSuffix(line, " ") {
			t.Errorf("line %d ends in a space: %q", i+1, line)
		}
		for _, r := range line {
			if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
				t.Errorf("line %d contains %q", i+1, r)
			}
		}
	}
}

func TestJSON(t *testing.T) {
	var b bytes.Buffer
	if err := WriteLeaksJSON(&b, testSnapshot(), testStacks(), Options{}); err != nil {
		t.Fatal(err)
	}
	golden(t, "leaks.json", b.Bytes())
}

func TestColourOnlyWhereAskedFor(t *testing.T) {
	for _, color := range []bool{false, true} {
		var b bytes.Buffer
		if err := WriteLeaks(&b, testSnapshot(), testStacks(), Options{}, Screen{Color: color}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(b.String(), "\x1b"); got != color {
			t.Errorf("color %v: escape sequences %v", color, got)
		}
	}
}

func TestNothingTraced(t *testing.T) {
	s := ledger.New(ledger.Options{}).Snapshot(second, time.Unix(0, 0))
	var b bytes.Buffer
	if err := errors.Join(
		WriteLeaks(&b, s, stackMap{}, Options{}, Screen{}),
		WriteSummary(&b, s, stackMap{}, Options{}, Screen{}),
		WriteLeaksJSON(&b, s, stackMap{}, Options{}),
		WriteProfile(&b, s, stackMap{}),
	); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"No live GPU memory", "No allocation was seen", `"sites": []`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing", want)
		}
	}
}

func TestLeaksSelectsByAge(t *testing.T) {
	s := testSnapshot()
	count := func(older time.Duration) int { return len(Leaks(s, Options{Older: older})) }
	// Oldest at 0 s (training), 1.5 s, 4 s and 4.1 s (hostile); 3 s before the exit at 60 s (server).
	for _, c := range []struct {
		older time.Duration
		want  int
	}{{0, 5}, {57 * time.Second, 5}, {58 * time.Second, 4}, {97 * time.Second, 2}, {99 * time.Second, 1}, {101 * time.Second, 0}} {
		if got := count(c.older); got != c.want {
			t.Errorf("%v: %d sites, want %d", c.older, got, c.want)
		}
	}
}

// TestMemoryOfUnknownAgeIsNotOlderThanAnything: a site has no oldest allocation where the sample has none that lives, and a
// clock that begins with the machine must not stand in for it.
func TestMemoryOfUnknownAgeIsNotOlderThanAnything(t *testing.T) {
	s := torchSnapshot()
	n := slices.IndexFunc(s.Sites, func(x ledger.Site) bool { return x.Kind == ledger.Tensor && x.Device == 0 })
	s.Sites[n].Oldest = 0
	stack, all := s.Sites[n].Stack, len(Leaks(s, Options{}))
	has := func(list []ledger.Site) bool {
		return slices.ContainsFunc(list, func(x ledger.Site) bool {
			return x.Stack == stack && x.Process == 0 && x.Kind == ledger.Tensor && x.Device == 0
		})
	}
	if list := Leaks(s, Options{}); !has(list) {
		t.Errorf("without --older the site is not listed")
	}
	if list := Leaks(s, Options{Older: time.Second}); has(list) || len(list) != all-1 {
		t.Errorf("older than 1s: %d sites, unknown age among them: %v; want the %d others", len(list), has(list), all-1)
	}
	if list := Leaks(s, Options{Older: 20 * time.Minute}); len(list) != 0 {
		t.Errorf("%d sites are older than 20m in a session of 100s", len(list))
	}
	var text, json bytes.Buffer
	if err := errors.Join(
		WriteLeaks(&text, s, torchStacks(), Options{Older: time.Second}, Screen{}),
		WriteLeaks(&text, s, torchStacks(), Options{}, Screen{}),
		WriteLeaksJSON(&json, s, torchStacks(), Options{}),
	); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"not counted, as its age is unknown: 1,860 allocations, 9.08 GiB", "age unknown"} {
		if !strings.Contains(strings.Join(strings.Fields(text.String()), " "), want) {
			t.Errorf("%q is missing in\n%s", want, text.String())
		}
	}
	if !strings.Contains(json.String(), `"oldest_ns": 0,`) {
		t.Error("the JSON has an age")
	}
}

func TestCountsHaveTheirPlural(t *testing.T) {
	for noun, want := range map[string]string{
		"allocation": "2 allocations", "process": "2 processes", "more branch": "2 more branches", "library": "2 libraries", "context": "2 contexts", "GPU": "2 GPUs",
	} {
		if got := counted(2, noun); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if got := counted(1, noun); got != "1 "+noun {
			t.Errorf("%q of one", got)
		}
	}
}

func TestHeadlineIsTheUsersOwnCode(t *testing.T) {
	var (
		call    = native("cudaMalloc", cudart, 1)
		library = script("Linear.forward", "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", 1)
		debian  = script("f", "/usr/lib/python3/dist-packages/numpy/core.py", 1)
		std     = script("Thread.run", "/usr/lib/python3.11/threading.py", 1)
		zipped  = script("run", "/usr/lib/python311.zip/threading.py", 1)
		frozen  = script("_call_with_frames_removed", "<frozen importlib._bootstrap>", 1)
		mine    = script("step", "/home/ada/train.py", 1)
		dashC   = script("<module>", "<string>", 1)
		start   = native("__libc_start_main", libc, 1)
		alloc   = native("c10::alloc", torch, 1)
		handle  = native("handle", infer, 1)
		unnamed = native("infer+0x1234", infer, 0x1234)
		jit     = callstack.Frame{Function: "kernel_launcher", Address: 7}
		ctypes  = native("py_cfunc", &callstack.Mapping{Path: "/usr/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so"}, 1)
		ffi     = native("ffi_call", &callstack.Mapping{Path: "/usr/lib/libffi.so.8"}, 1)
		eval    = native("_PyEval_EvalFrameDefault", python, 1)
		addmm   = native("torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor>&&)", torchCPU, 1)
		mark    = callstack.Frame{Function: "[truncated: x]", Mark: true}
	)
	for _, c := range []struct {
		name  string
		stack []callstack.Frame
		want  callstack.Frame
	}{
		{"Python over libraries", []callstack.Frame{call, alloc, library, debian, std, mine, dashC}, mine},
		{"Python over native code nearer to the call", []callstack.Frame{call, handle, mine}, mine},
		{"python -c is the user's", []callstack.Frame{call, frozen, zipped, dashC}, dashC},
		{"native code of the program", []callstack.Frame{call, alloc, ctypes, ffi, eval, handle, start}, handle},
		{"a name is better than an address", []callstack.Frame{call, unnamed, handle, start}, handle},
		{"an address is better than nothing", []callstack.Frame{call, alloc, unnamed, start, mark}, unnamed},
		{"code made at run time", []callstack.Frame{call, jit, start}, jit},
		{"library Python for want of better", []callstack.Frame{call, alloc, library, std, start}, library},
		{"a step of the backward pass, whose threads have no Python", []callstack.Frame{call, alloc, addmm, start}, addmm},
		{"the call itself for want of all", []callstack.Frame{call, alloc, start, mark}, call},
	} {
		if got := c.stack[frames.Headline(c.stack)]; got != c.want {
			t.Errorf("%s: got %s in %s, want %s", c.name, got.Function, got.File, c.want.Function)
		}
	}
}

func TestSpans(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0ms", 350 * time.Millisecond: "350ms", 8500 * time.Millisecond: "8.5s", 59 * time.Second: "59s",
		132 * time.Second: "2m12s", 3*time.Hour + 5*time.Minute: "3h05m", 52 * time.Hour: "2d4h",
	} {
		if got := span(uint64(d)); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

func FuzzFrameTextFits(f *testing.F) {
	f.Add("step", "/home/ada/train.py", true, 20)
	f.Add("很很很很很很", "很很很很/很很很\u0301很", false, 7)
	f.Fuzz(func(t *testing.T, function, file string, isPython bool, width int) {
		width = 4 + int(uint(width)%200)
		text := frameText(&callstack.Frame{Function: function, File: file, Line: 1, Python: isPython}, width)
		if columns(text) > width {
			t.Errorf("%q has %d columns, want at most %d", text, columns(text), width)
		}
	})
}
