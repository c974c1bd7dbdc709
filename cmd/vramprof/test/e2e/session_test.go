// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"golang.org/x/sys/unix"

	reportjson "github.com/vramprof/vramprof/report/json"
)

// session is a running vramprof.
type session struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout bytes.Buffer
	stderr output
	path   string // of the profile, with record
	done   chan error
}

// output can be read while it is written.
type output struct {
	mu    sync.Mutex
	text  []byte
	timed []byte // each write with its time
}

func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, text...)
	o.timed = fmt.Appendf(o.timed, "%s %s", time.Now().Format("05.000"), text)
	return len(text), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text)
}

// startRecord starts "vramprof record", which writes a profile into a folder of the test.
func startRecord(t *testing.T, env []string, args ...string) *session {
	t.Helper()
	path := filepath.Join(t.TempDir(), "profile.pb.gz")
	s := start(t, env, append([]string{"record", "-o", path}, args...)...)
	s.path = path
	return s
}

// startLeaks starts "vramprof leaks --json" for all sites.
func startLeaks(t *testing.T, env []string, args ...string) *session {
	t.Helper()
	return start(t, env, append([]string{"leaks", "--json", "--top", "10000"}, args...)...)
}

func start(t *testing.T, env []string, args ...string) *session {
	t.Helper()
	before := []string{args[0], "-v"}
	if !slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--holders") }) {
		before = append(before, "--holders=off") // a walk takes up to a second, and few tests need one
	}
	s := &session{t: t, cmd: exec.Command(binary(t), append(before, args[1:]...)...), done: make(chan error, 1)}
	s.cmd.Env, s.cmd.Stdout, s.cmd.Stderr = env, &s.stdout, &s.stderr
	// Processes that the command leaves running must not delay the end of its output.
	s.cmd.WaitDelay = 2 * time.Second
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.done <- s.cmd.Wait() }()
	t.Cleanup(func() {
		s.cmd.Process.Kill()
		if t.Failed() {
			t.Logf("output of vramprof, with seconds:\n%s", s.stderr.timed)
		}
	})
	return s
}

// ready waits until the probes are attached.
func (s *session) ready() *session {
	s.t.Helper()
	eventually(s.t, 3*time.Minute, "vramprof traces", func() bool {
		if len(s.done) > 0 {
			s.t.Fatalf("vramprof ended early: %v", <-s.done)
		}
		text := s.stderr.String()
		return strings.Contains(text, "vramprof: tracing ") || strings.Contains(text, "vramprof: waiting ")
	})
	return s
}

// stop ends the session with SIGINT.
func (s *session) stop() *session {
	s.t.Helper()
	if err := s.cmd.Process.Signal(unix.SIGINT); err != nil {
		s.t.Fatal(err)
	}
	return s.wait()
}

// wait waits for the end of a session that ends on its own.
func (s *session) wait() *session {
	s.t.Helper()
	select {
	case err := <-s.done:
		if err != nil {
			s.t.Fatalf("vramprof: %v", err)
		}
	case <-time.After(3 * time.Minute * slowness):
		s.t.Fatalf("vramprof did not end within %v", 3*time.Minute*slowness)
	}
	return s
}

func (s *session) profile() *profile.Profile {
	s.t.Helper()
	f, err := os.Open(s.path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	p, err := profile.Parse(f)
	if err != nil {
		s.t.Fatalf("parse the profile: %v", err)
	}
	if err := p.CheckValid(); err != nil {
		s.t.Errorf("the profile is not valid: %v", err)
	}
	s.sampleTypes(p)
	return p
}

// sampleTypes checks the types of a profile and reduces it to what calls of the program allocated:
// it appends live host memory, which has separate types, and drops NVML's figures from before the
// attach or beyond the traced memory.
func (s *session) sampleTypes(p *profile.Profile) {
	s.t.Helper()
	var types []string
	for _, x := range p.SampleType {
		types = append(types, x.Type)
	}
	if got := strings.Join(types, " "); got != "alloc_objects alloc_space inuse_objects inuse_space host_objects host_space peak_objects peak_space" || p.DefaultSampleType != "inuse_space" && p.DefaultSampleType != "peak_space" {
		s.t.Errorf("sample types %s, default %s", got, p.DefaultSampleType)
	}
	p.Sample = slices.DeleteFunc(p.Sample, func(x *profile.Sample) bool {
		atPeak := !slices.ContainsFunc(x.Value[:6], func(n int64) bool { return n != 0 }) && x.Value[7] != 0 // of a process that has ended
		return slices.Contains([]string{"before", "rounding", "unexplained"}, label(x, "plane")) || atPeak
	})
	for _, x := range p.Sample {
		if host := label(x, "plane") == "host" || label(x, "plane") == "managed"; host && (x.Value[2] != 0 || x.Value[3] != 0) || !host && (x.Value[4] != 0 || x.Value[5] != 0) {
			s.t.Errorf("values %v of plane %s", x.Value, label(x, "plane"))
		}
		x.Value[2] += x.Value[4]
		x.Value[3] += x.Value[5]
	}
}

func (s *session) leaks() *reportjson.LeaksReport {
	s.t.Helper()
	r := new(reportjson.LeaksReport)
	if err := json.Unmarshal(s.stdout.Bytes(), r); err != nil {
		s.t.Fatalf("parse the report: %v\n%s", err, s.stdout.Bytes())
	}
	checkSums(s.t, r)
	return r
}

// profileOf returns the profile of a capture.
func profileOf(t *testing.T, capture string) *profile.Profile {
	t.Helper()
	path := filepath.Join(t.TempDir(), "profile.pb.gz")
	if out, err := exec.Command(binary(t), "export", "-o", path, capture).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return (&session{t: t, path: path}).profile()
}

// leaksOf returns the report of "vramprof leaks --json" on a capture, with all sites.
func leaksOf(t *testing.T, capture string) *reportjson.LeaksReport {
	t.Helper()
	out, err := exec.Command(binary(t), "leaks", "--json", "--top", "10000", capture).Output()
	if err != nil {
		t.Fatal(err)
	}
	return (&session{t: t, stdout: *bytes.NewBuffer(out)}).leaks()
}

// checkSums checks that the planes of GPU memory do not exceed NVML's figures, if NVML has one for
// each process.
func checkSums(t *testing.T, r *reportjson.LeaksReport) {
	t.Helper()
	var shown, usage int64
	listed := map[int]bool{}
	for _, x := range r.Planes {
		shown += x.Bytes
	}
	for _, x := range r.Parts {
		usage += int64(x.UsageBytes)
		listed[x.Process] = true
	}
	if len(listed) == len(r.Processes) && shown > usage {
		t.Errorf("the report has %d bytes on GPUs, NVML %d", shown, usage)
	}
}

// record traces a command from start to end.
func record(t *testing.T, env []string, command ...string) *profile.Profile {
	t.Helper()
	return startRecord(t, env, append([]string{"--"}, command...)...).wait().profile()
}

// leaks traces a command from start to end. The command must not print to stdout.
func leaks(t *testing.T, env []string, command ...string) *reportjson.LeaksReport {
	t.Helper()
	quiet := append([]string{"sh", "-c", `exec "$@" >&2`, "sh"}, command...)
	return startLeaks(t, env, append([]string{"--"}, quiet...)...).wait().leaks()
}

// afterASecond waits for the guaranteed time in which a tracer notices what a program has mapped.
func (s *session) afterASecond() {
	s.t.Helper()
	s.after(time.Second)
}

// after waits for a time and then until vramprof has nothing left to do: on a busy machine, its
// threads get the processor late.
func (s *session) after(d time.Duration) {
	s.t.Helper()
	time.Sleep(d * slowness)
	idle := 0 // consecutive looks, because a thread also sleeps briefly in the middle of its work
	eventually(s.t, 3*time.Minute, "vramprof has nothing left to do", func() bool {
		if hasWork(s.cmd.Process.Pid) {
			idle = 0
		} else {
			idle++
		}
		return idle == 5
	})
}

// hasWork reports whether a thread of a process runs, waits for a processor, or cannot be
// interrupted.
func hasWork(pid int) bool {
	list, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	return slices.ContainsFunc(list, func(path string) bool {
		state := stateIn(path)
		return state == 'R' || state == 'D'
	})
}
