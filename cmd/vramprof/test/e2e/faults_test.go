// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/fakecuda"
)

// said checks that the summary, the profile and the capture of a finished run contain a sentence.
func (s *session) said(want string) {
	s.t.Helper()
	if text := strings.Join(strings.Fields(s.stdout.String()), " "); !strings.Contains(text, want) {
		s.t.Errorf("the summary lacks %q:\n%s", want, s.stdout.String())
	}
	if comments := strings.Join(s.profile().Comments, "\n"); !strings.Contains(comments, want) {
		s.t.Errorf("the profile lacks %q:\n%s", want, comments)
	}
	out, err := exec.Command(binary(s.t), "leaks", "--json", s.capture()).CombinedOutput()
	if err != nil || !strings.Contains(string(out), want) {
		s.t.Errorf("the JSON of the capture lacks %q: %v\n%s", want, err, out)
	}
}

func (s *session) capture() string { return strings.TrimSuffix(s.path, ".pb.gz") + ".vram" }

// startBoth starts a session that writes a profile and a capture.
func startBoth(t *testing.T, env []string, args ...string) *session {
	t.Helper()
	return startRecord(t, env, append([]string{"-f", "pprof", "-f", "capture"}, args...)...)
}

// TestStoppedTracerCountsLostEvents stops vramprof while its target fills the ring, as suspend or a
// debugger would.
func TestStoppedTracerCountsLostEvents(t *testing.T) {
	const pairs = 150_000 // two events each; the ring has space for 260,000
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	target := startTarget(t, env, dir.Program("alloc_c"), writeFile(t, "script",
		fmt.Sprintf("ready\nwait\nrepeat %d\nmalloc a 16\nfree a\nend\nprint done\nwait\nmalloc b 5000\nprint end\nwait\n", pairs)))
	target.expectReady()
	s := startBoth(t, env, "-p", fmt.Sprint(target.pid())).ready()
	if err := s.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	target.next()
	target.expect("done") // it never waits for the tracer
	if err := s.cmd.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, 3*time.Minute, "it reads the ring again", func() bool {
		return replay(t, openCapture(t, s.capture())).Stats.Events > 0
	})
	target.next()
	target.expect("end")
	s.stop()
	s.said("events were lost because their process had used its share of the buffers: counts and bytes can be too high or too low")
	lost := regexp.MustCompile(`([\d,]+) events were lost`).FindStringSubmatch(s.stdout.String())
	if lost == nil {
		t.Fatal("no number of lost events")
	}
	missed, err := strconv.Atoi(strings.ReplaceAll(lost[1], ",", ""))
	events := replay(t, openCapture(t, s.capture())).Stats.Events
	if sum := uint64(missed) + events; err != nil || sum < 2*pairs || sum > 2*pairs+10 {
		t.Errorf("%d lost and %d booked, of %d", missed, events, 2*pairs+1)
	}
	var last int64 // the books continue with later events
	for _, x := range s.profile().Sample {
		if x.Value[3] == 5000 { // from a stack outside the loop
			last += x.Value[2]
		}
	}
	if last != 1 {
		t.Errorf("%d allocations after the pause are booked, want 1", last)
	}
	target.end()
}

// faulty returns an environment whose NVML has the faults that set sets.
func faulty(t *testing.T, dir fakecuda.Dir) (env []string, set func(words string)) {
	t.Helper()
	path := writeFile(t, "faults", "")
	return append(dir.Env(t, 2, 8<<30), "FAKECUDA_NVML_FAULTS="+path), func(words string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(words), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNVMLFaultsDoNotAffectTracing makes NVML fail in the middle of a run, in each way, and recover
// or not.
func TestNVMLFaultsDoNotAffectTracing(t *testing.T) {
	dir := setup(t)
	for _, c := range []struct{ name, first, middle, end, want string }{
		{"hangs at first", "hang-init", "hang-init", "hang-init", ""},
		{"hangs in the middle", "", "hang", "", ""}, // for a short time
		{"hangs from then on", "", "hang", "hang", "NVML has been silent since "},
		{"hangs at the end", "", "", "hang hang-end", ""},
		{"its driver is loaded again", "", "unloaded", "", "NVML was silent from "},
		{"its driver is gone", "", "unloaded", "unloaded", "NVML has been silent since "},
		{"its GPUs are lost", "", "lost", "lost", "NVML has been silent since "},
		{"has another number of GPUs", "", "one", "one", ""},
		{"lies", "", "many counts pids sizes strings", "many counts pids sizes strings", "NVML has been silent since "},
		{"lies about usage", "", "pids sizes", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			env, set := faulty(t, dir)
			set(c.first)
			defer set("")
			target := startTarget(t, append(env, "FAKECUDA_NVML_FAULTS="), dir.Program("alloc_c"), writeFile(t, "script",
				"malloc z 10\nready\nwait\nmalloc a 1000\nprint one\nwait\nmalloc b 2000\nprint two\nwait\nmalloc c 4000\nprint three\nwait\n"))
			target.expectReady()
			s := startBoth(t, env, "-p", fmt.Sprint(target.pid())).ready()
			for _, step := range [][2]string{{c.first, "one"}, {c.middle, "two"}, {c.end, "three"}} {
				set(step[0])
				time.Sleep(1200 * time.Millisecond) // one reading per second
				target.next()
				target.expect(step[1])
			}
			began := time.Now()
			s.stop()
			t.Logf("the end took %v", time.Since(began).Round(time.Millisecond))
			if c.want != "" {
				s.said(c.want)
			}
			if said := s.stdout.String() + s.stderr.String(); strings.Contains(said, "\x1b") || !utf8.ValidString(said) {
				t.Error("control characters in its output")
			}
			var bytes int64
			for _, x := range s.profile().Sample {
				bytes += x.Value[3]
			}
			if bytes != 7000 {
				t.Errorf("%d bytes are booked, want 7000", bytes)
			}
			target.end()
		})
	}
}

// TestClosedOutputIsNoPanic closes the reader of vramprof's output, as head does.
func TestClosedOutputIsNoPanic(t *testing.T) {
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	run := filepath.Join(t.TempDir(), "run.vram")
	record := start(t, env, "record", "-o", run, "--", dir.Program("alloc_c"), writeFile(t, "script", "malloc a 1000\nmalloc b 1000000\n"))
	record.wait()
	for _, args := range [][]string{
		{"report", run}, {"report", run, "--json"}, {"report", run, "--view", "tree"}, {"report", run, "--view", "timeline"}, {"leaks", run},
		{"leaks", run, "--json"}, {"diff", run, run}, {"compare", run, run}, {"check"}, {"--help"}, {"version"},
		{"leaks", "--", "true"}, {"record", "-o", filepath.Join(t.TempDir(), "p.pb.gz"), "--", "true"},
	} {
		cmd := exec.Command(binary(t), args...)
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		read.Close()
		var stderr bytes.Buffer
		cmd.Env, cmd.Stdout, cmd.Stderr = env, write, &stderr
		err = cmd.Run()
		write.Close()
		if text := stderr.String(); strings.Contains(text, "goroutine ") || strings.Contains(text, "panic") || strings.Contains(text, "defect") {
			t.Errorf("%v: %v\n%s", args, err, text)
		}
		if err == nil {
			t.Errorf("%v: nothing read its output, and it ended with 0", args)
		}
		if path := args[min(2, len(args)-1)]; args[0] == "record" {
			if _, err := os.Stat(path); err != nil {
				t.Errorf("the profile was not written: %v", err)
			}
		}
	}
}

// TestFullDiskDuringExport writes each file made from a capture to a full disk.
func TestFullDiskDuringExport(t *testing.T) {
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	run := filepath.Join(t.TempDir(), "run.vram")
	start(t, env, "record", "-o", run, "--", dir.Program("alloc_c"), writeFile(t, "script", "malloc a 1000\nmalloc b 1000000\n")).wait()
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=8k"); err != nil {
		t.Skipf("mount a small disk: %v", err)
	}
	defer unix.Unmount(disk, unix.MNT_DETACH)
	for _, args := range [][]string{
		{"report", run, "--html", "x.html"}, {"export", run, "-f", "pprof", "-o", "x.pb.gz"}, {"export", run, "-f", "chrome", "-o", "x.json"},
		{"export", run, "-f", "folded", "-o", "x.folded"}, {"export", run, "-f", "torch", "-o", "x.pickle"}, {"diff", run, run, "-o", "d.pb.gz"},
	} {
		cmd := exec.Command(binary(t), args...)
		cmd.Dir, cmd.Env = disk, append(env, "TMPDIR="+disk)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "no space left on device") || strings.Contains(string(out), "goroutine ") {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
		if left, _ := os.ReadDir(disk); len(left) != 0 {
			t.Errorf("%v left %v", args, left)
		}
	}
}

// TestTimeNamespaceDoesNotShiftTimes runs vramprof where the clocks are days ahead of the kernel's.
func TestTimeNamespaceDoesNotShiftTimes(t *testing.T) {
	dir := setup(t)
	unshare := []string{"unshare", "--time", "--fork", "--monotonic", "500000", "--boottime", "900000"}
	if out, err := exec.Command(unshare[0], append(unshare[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("no time namespace: %v %s", err, out)
	}
	env := dir.Env(t, 1, 8<<30)
	path := filepath.Join(t.TempDir(), "run.vram")
	cmd := exec.Command(unshare[0], append(unshare[1:], binary(t), "record", "-o", path, "--", dir.Program("alloc_c"), writeFile(t, "script", "malloc a 1000\nsleep 300\nmalloc b 1000\nfree b\n"))...)
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s := replay(t, openCapture(t, path))
	span := func(at uint64) time.Duration { return time.Duration(at) - time.Duration(s.Begin) }
	if span(s.End) > time.Hour || span(s.End) < 300*time.Millisecond {
		t.Errorf("it took %v", span(s.End))
	}
	if len(s.Processes) != 1 || len(s.Processes[0].Totals) == 0 {
		t.Fatalf("processes %+v", s.Processes)
	}
	for _, x := range s.Processes[0].Totals {
		if at := span(x.PeakTime); at < 300*time.Millisecond || at > span(s.End) {
			t.Errorf("the peak was after %v of %v", at, span(s.End))
		}
	}
}
