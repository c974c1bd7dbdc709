// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	reportjson "github.com/vramprof/vramprof/report/json"
)

// The arguments of a generic node differ between the runtimes of CUDA 12 and 13, although its
// function has one name.
func TestRuntimeOfCUDA13IsTraced(t *testing.T) {
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	script := writeFile(t, "script", "cudaMalloc a 1000\ncudaFree a\ncudaMalloc b 24\ncudaGraphCreate g\ncudaGraphAddNode n g kernel\ncudaGraphAddNode n g c 0 4000\n"+
		"cudaMemGetDefaultMemPool h host 1\ncudaMallocFromPoolAsync d 500 h\nready\nwait\n")
	for _, late := range []bool{false, true} {
		var r *reportjson.LeaksReport
		if late {
			target := startTarget(t, env, dir.Program("calls_13"), writeFile(t, "late", "cudaFree 0\nready\nwait\n"+readFile(t, script)))
			target.expectReady()
			s := startLeaks(t, env, "-p", fmt.Sprint(target.pid())).ready()
			target.next()
			target.expectReady()
			r = s.stop().leaks()
			target.end()
		} else {
			r = leaks(t, env, dir.Program("calls_13"), writeFile(t, "early", strings.TrimSuffix(readFile(t, script), "ready\nwait\n")))
		}
		checkNoLosses(t, r)
		got := map[string]uint64{}
		for _, x := range r.Sites {
			got[x.API+" "+x.Kind+" "+x.Device] = x.LiveBytes
		}
		want := map[string]uint64{"cudaMalloc device cuda:0": 24, "cudaGraphAddNode graph cuda:0": 4000, "cudaMallocFromPoolAsync pinned host": 500}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("late %v: %v, want %v", late, got, want)
		}
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestObjectsThatGrowWithUnexplainedMemoryAreNamed(t *testing.T) {
	dir := setup(t)
	env := append(dir.Env(t, 1, 8<<30), "FAKECUDA_OBJECT=16M")
	target := startTarget(t, env, dir.Program("calls_c"), writeFile(t, "script", "cudaMalloc a 1000\nready\nwait\n"+
		"repeat 4\ncuModuleLoadData m elf 100000\nend\ncuModuleUnload m\ncudaGraphCreate g\nrepeat 2\ncudaGraphInstantiate e g\nend\nprint done\nwait\n"))
	target.expectReady()
	text := start(t, env, "record", "-o", writeFile(t, "unused", "")+".pb.gz", "-p", fmt.Sprint(target.pid())).ready()
	s := startLeaks(t, env, "-p", fmt.Sprint(target.pid())).ready()
	s.afterASecond()
	text.after(0)
	target.next()
	target.expect("done")
	s.after(2500 * time.Millisecond) // wait for a reading of the driver
	text.after(0)
	r := s.stop().leaks()
	out := text.stop().stdout.String()
	target.end()
	checkNoLosses(t, r)
	got := map[string]string{}
	for _, o := range r.Objects {
		got[o.Kind+" "+o.API+" "+o.Device] = fmt.Sprintf("%d of %d, %d named, grew %v", o.Live, o.Made, o.NamedBytes, o.Unexplained)
		if !hasFrame(o.Stack, "run_script") {
			t.Errorf("the stack of %s is %+v", o.API, o.Stack)
		}
	}
	want := map[string]string{
		"module cuModuleLoadData cuda:0":               "3 of 4, 300000 named, grew true",
		"graph executable cudaGraphInstantiate cuda:0": "2 of 2, 0 named, grew true",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("objects %v, want %v", got, want)
	}
	plain := strings.Join(strings.Fields(out), " ")
	if !regexp.MustCompile(`calls_c \[\d+\] on cuda:0: while what is unexplained grew to 80.0 MiB it made 3 modules \(293 KiB of code\) at .*, 2 graph executables at `).MatchString(plain) {
		t.Errorf("the summary does not name the objects:\n%s", out)
	}
}

func hasFrame(stack []reportjson.FrameReport, name string) bool {
	for _, f := range stack {
		if f.Function == name {
			return true
		}
	}
	return false
}

func TestProcessesWithOnlyAContextAreListed(t *testing.T) {
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	program := copyFile(t, dir.Program("calls_c"), t.TempDir()+"/contexts_only")
	script := writeFile(t, "script", "print up\nwait\ncudaFree 0\nready\nwait\n")
	older := startTarget(t, env, program, script)
	older.expect("up")
	older.next()
	older.expectReady()
	s := startLeaks(t, env, "--name", "contexts_only").ready()
	text := start(t, env, "record", "-o", writeFile(t, "unused", "")+".pb.gz", "--name", "contexts_only").ready()
	var younger []*target
	for range 2 {
		younger = append(younger, startTarget(t, env, program, script))
	}
	for _, p := range younger {
		p.expect("up")
		s.untilUnwound(p.pid())
		text.untilUnwound(p.pid())
	}
	s.afterASecond()
	text.after(0)
	for _, p := range younger {
		p.next()
		p.expectReady()
	}
	s.after(2500 * time.Millisecond) // wait for a reading of the driver
	text.after(0)
	r := s.stop().leaks()
	out := text.stop().stdout.String()
	for _, p := range append(younger, older) {
		p.end()
	}
	if len(r.ContextOnly) != 3 {
		t.Fatalf("%+v, want three processes", r.ContextOnly)
	}
	for _, c := range r.ContextOnly {
		isOlder := int(c.PID) == older.pid()
		if c.Usage != 300<<20 || c.Older != isOlder || (c.API == "cudaFree") == isOlder || hasFrame(c.Stack, "run_script") == isOlder {
			t.Errorf("%+v, older %v", c, isOlder)
		}
	}
	plain := strings.Join(strings.Fields(out), " ")
	if !regexp.MustCompile(`2 processes contexts_only \[\d+, \d+\]: no GPU memory but a context, made at .*: 300 MiB each, 600 MiB in all`).MatchString(plain) ||
		!strings.Contains(plain, fmt.Sprintf("contexts_only [%d]: no GPU memory allocated since the attach; its context and older memory: 300 MiB", older.pid())) {
		t.Errorf("the summary does not list them:\n%s", out)
	}
}

// A stream can join another stream's capture through an event, which the traced calls do not show.
func TestAllocationDuringStreamCaptureIsADoubt(t *testing.T) {
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	for stream, doubts := range map[int]int{4096: 0, 5000: 1} {
		script := fmt.Sprintf("cudaMallocAsync a 1000 5000\ncudaStreamBeginCapture 4096\ncudaMallocAsync b 24 %d\ncudaStreamEndCapture 4096 g\ncudaMallocAsync c 7 5000\n", stream)
		r := leaks(t, env, dir.Program("calls_c"), writeFile(t, "script", script))
		found := 0
		for _, w := range r.Warnings {
			if strings.Contains(w, "while it captured another") {
				found++
			}
		}
		if found != doubts {
			t.Errorf("stream %d: warnings %q, want %d about the capture", stream, r.Warnings, doubts)
		}
	}
}

func TestObjectsOfACaptureEqualTheLiveRun(t *testing.T) {
	dir := setup(t)
	env := append(dir.Env(t, 1, 8<<30), "FAKECUDA_OBJECT=16M")
	path := writeFile(t, "unused", "") + ".vram"
	start(t, env, "record", "-o", path, "--", dir.Program("calls_c"), writeFile(t, "script",
		"cudaMalloc a 1000\nsleep 1500\nrepeat 3\ncuModuleLoadData m elf 100000\nend\ncuGreenCtxCreate g 0\nsleep 2500\n")).wait()
	var r reportjson.ViewReport
	read := func(moment ...string) {
		out, err := exec.Command(binary(t), append([]string{"report", path, "--json"}, moment...)...).Output()
		if err := errors.Join(err, json.Unmarshal(out, &r)); err != nil {
			t.Fatal(err)
		}
	}
	read()
	read("--at", time.Duration(r.DurationNS-min(15e8, r.DurationNS)).String()) // while it sleeps
	got := map[string]uint64{}
	for _, o := range r.Summary.Objects {
		got[o.Kind+" "+o.API] += o.Live
	}
	if want := map[string]uint64{"context cudaMalloc": 1, "module cuModuleLoadData": 3, "green context cuGreenCtxCreate": 1}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}
