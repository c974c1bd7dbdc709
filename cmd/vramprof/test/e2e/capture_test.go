// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/profile"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func monotonic(t *testing.T) uint64 {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Fatal(err)
	}
	return uint64(ts.Nano())
}

func openCapture(t *testing.T, path string) *capture.Reader {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Fatalf("the capture: %v, %v", info, err)
	}
	r, err := capture.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func replay(t *testing.T, r *capture.Reader) *ledger.Snapshot {
	t.Helper()
	s, err := r.Snapshot(math.MaxUint64)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestCaptureReproducesTheReportsOfTheLiveRun checks that the reports are equal byte for byte.
func TestCaptureReproducesTheReportsOfTheLiveRun(t *testing.T) {
	dir := setup(t)
	tensors := "alloc a 1M\nalloc b 8M\nlive 1000 512\nfree a\nalloc c 30M\n"
	for name, script := range map[string]string{"alloc_c": everyOperation, "tensors_c": tensors} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := append(dir.Env(t, 2, 8<<30), "COLUMNS=80")
			if name == "tensors_c" {
				env = append(env, "LD_LIBRARY_PATH="+dir.Lib("torch-2.6")+":"+string(dir))
			}
			checkSameReports(t, env, dir.Program(name), script)
		})
	}
}

// recordPath is where the summary of a run names the record of an error, which a capture does not
// know.
var recordPath = regexp.MustCompile(`\n +what all processes held then is in\s+\S+\n`)

func checkSameReports(t *testing.T, env []string, program, script string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.vram")
	quiet := []string{"record", "--sample", "4KiB", "-o", path, "-f", "capture", "-f", "pprof", "--", "sh", "-c", `exec "$@" >&2`, "sh"}
	s := start(t, env, append(quiet, program, writeFile(t, "script", script))...)
	s.path = filepath.Join(filepath.Dir(path), "run.pb.gz")
	s.wait()
	s.profile()
	written, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	live := recordPath.ReplaceAllString(s.stdout.String(), "\n")
	for range 2 {
		r := openCapture(t, path)
		snapshot := replay(t, r)
		var summary, again bytes.Buffer
		if err := text.WriteSummary(&summary, snapshot, r, report.Options{}, text.Screen{Width: 80}); err != nil {
			t.Fatal(err)
		}
		if summary.String() != live {
			t.Errorf("the summary of the capture:\n%s\nof the run:\n%s", summary.String(), live)
		}
		if err := profile.Write(&again, snapshot, r); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again.Bytes(), written) {
			t.Errorf("the profile of the capture differs from that of the run (%d and %d bytes)", again.Len(), len(written))
		}
		if !r.Ended() || len(r.Warnings()) != 0 {
			t.Errorf("ended %v, warnings %q", r.Ended(), r.Warnings())
		}
	}
}

// together is how many tries random tests make, all at once. Each run of the suite adds other
// tries.
const together = 2

// busy starts a program that allocates and frees continuously.
func busy(t *testing.T, dir fakecuda.Dir, env []string, rate int) *target {
	t.Helper()
	p := startTarget(t, env, dir.Program("bench_c"), "cudart", "20", "0", "--wait", "--seconds", "600", "--rate", fmt.Sprint(rate), "--live", "100", "--sites", "10")
	p.expectReady()
	p.next()
	return p
}

// late is how much later than guaranteed a busy machine may write.
const late = time.Second

// lastEvent records the time of the last event of a capture.
type lastEvent struct {
	*ledger.Ledger
	time  uint64
	count int
}

func (l *lastEvent) Apply(e *ledger.Event) {
	l.time = max(l.time, e.Time)
	l.count++
	l.Ledger.Apply(e)
}

// checkUpTo checks that an interrupted capture contains everything up to one second before a
// moment.
func checkUpTo(t *testing.T, r *capture.Reader, moment uint64) {
	t.Helper()
	books := &lastEvent{Ledger: r.NewLedger()}
	if err := r.Play(math.MaxUint64, books); err != nil {
		t.Fatal(err)
	}
	missing := time.Duration(moment) - time.Duration(books.time)
	t.Logf("%d events, the last one %v earlier", books.count, missing.Round(time.Millisecond))
	if missing > time.Second+late || time.Duration(moment)-time.Duration(r.End()) > time.Second+late {
		t.Errorf("the last %v are missing (the capture ends %v earlier)", missing, time.Duration(moment)-time.Duration(r.End()))
	}
	if w := r.Warnings(); r.Ended() || len(w) != 1 || !strings.HasPrefix(w[0], "the capture is incomplete (still being written, its disk was full, or vramprof was killed): it ends at ") {
		t.Errorf("warnings %q", w)
	}
	s := replay(t, r)
	named := 0
	for _, x := range s.Sites {
		if frames := r.Stack(x.Stack); len(frames) > 2 && frames[0].Function != "" {
			named++
		}
	}
	if len(s.Processes) != 1 || s.Processes[0].Comm != "bench_c" || books.count > 0 && named == 0 {
		t.Errorf("processes %+v, %d of %d sites have names", s.Processes, named, len(s.Sites))
	}
}

// TestKilledSessionLosesAtMostOneSecond checks the reason for writing a capture during the session.
func TestKilledSessionLosesAtMostOneSecond(t *testing.T) {
	dir := setupAlone(t)
	env := dir.Env(t, 1, 8<<30)
	program := busy(t, dir, env, 2000)
	var sessions []*session
	var paths []string
	for range together {
		paths = append(paths, filepath.Join(t.TempDir(), "run.vram"))
		sessions = append(sessions, start(t, env, "record", "-o", paths[len(paths)-1], "-p", fmt.Sprint(program.pid())))
	}
	for _, s := range sessions {
		s.ready()
	}
	time.Sleep(time.Second)
	for i, s := range sessions {
		time.Sleep(time.Duration(rand.Int64N(int64(600 * time.Millisecond))))
		killed := monotonic(t)
		if err := s.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-s.done
		checkUpTo(t, openCapture(t, paths[i]), killed)
	}
}

// TestFullDiskLeavesAValidCapture checks that tracing continues and that the end states the reason.
func TestFullDiskLeavesAValidCapture(t *testing.T) {
	dir := setupAlone(t)
	env := dir.Env(t, 1, 8<<30)
	program := busy(t, dir, env, 50_000)
	var sessions []*session
	var paths []string
	for range together {
		disk := t.TempDir()
		size := 1100<<10 + rand.Int64N(500<<10) // record does not start with less than 1 MiB
		if err := unix.Mount("tmpfs", disk, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
			t.Skipf("mount a small disk: %v", err)
		}
		t.Cleanup(func() { unix.Unmount(disk, unix.MNT_DETACH) })
		paths = append(paths, filepath.Join(disk, "run.vram"))
		sessions = append(sessions, start(t, env, "record", "-o", paths[len(paths)-1], "-p", fmt.Sprint(program.pid()), "--oom-dir", t.TempDir()))
	}
	full := make([]uint64, len(sessions))
	eventually(t, 3*time.Minute, "the disks are full", func() bool {
		all := true
		for i, s := range sessions {
			if full[i] == 0 && strings.Contains(s.stderr.String(), "no space left on device; tracing goes on") {
				full[i] = monotonic(t)
			}
			all = all && full[i] != 0
		}
		return all
	})
	for i, s := range sessions {
		checkFull(t, s, paths[i], full[i])
	}
}

// checkFull ends a session whose disk was full at some moment, and checks what it left.
func checkFull(t *testing.T, s *session, path string, full uint64) {
	t.Helper()
	if err := s.cmd.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := <-s.done; s.cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("vramprof ended with %v", err)
	}
	r := openCapture(t, path)
	at := time.Duration(r.End() - r.Begin())
	if lines := strings.Split(strings.TrimSpace(s.stderr.String()), "\n"); !strings.HasPrefix(lines[len(lines)-1], "vramprof: write "+path+": the capture ends at ") ||
		!strings.HasSuffix(lines[len(lines)-1], ": no space left on device") {
		t.Errorf("the capture ends at %v, and the last line is %q", at, lines[len(lines)-1])
	}
	if !strings.HasPrefix(s.stdout.String(), "1 process") {
		t.Errorf("no summary: %q", s.stdout.String())
	}
	checkUpTo(t, r, full)
}
