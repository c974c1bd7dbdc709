// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// server is a running vramprof serve.
type server struct {
	*session
	address string // "127.0.0.1:41234"
	runDir  string
	archive string
}

// startServe starts "vramprof serve" on a free port, and waits until it answers.
func startServe(t *testing.T, env []string, args ...string) *server {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	x := &server{address: free.Addr().String(), runDir: t.TempDir(), archive: t.TempDir()}
	free.Close()
	x.session = &session{t: t, done: make(chan error, 1)}
	args = append([]string{"serve", "--web.listen-address", x.address, "--run-dir", x.runDir, "--archive", x.archive}, args...)
	x.cmd = exec.Command(binary(t), args...)
	x.cmd.Env, x.cmd.Stdout, x.cmd.Stderr = env, &x.stdout, &x.stderr
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { x.done <- x.cmd.Wait() }()
	t.Cleanup(func() {
		x.cmd.Process.Kill()
		if t.Failed() {
			t.Logf("log of vramprof:\n%s", x.stderr.timed)
		}
	})
	eventually(t, 90*time.Second, "serve answers", func() bool {
		if len(x.done) > 0 {
			t.Fatalf("serve ended early: %v\n%s", <-x.done, x.stderr.String())
		}
		r, err := http.Get("http://" + x.address + "/-/ready")
		if err != nil {
			return false
		}
		r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
	return x
}

// get returns the body of an answer with status 200.
func (x *server) get(path string) []byte {
	x.t.Helper()
	r, err := http.Get("http://" + x.address + path)
	if err != nil {
		x.t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		x.t.Fatalf("GET %s: %s, %v: %.500s", path, r.Status, err, body)
	}
	return body
}

// waitFor waits for a message in the log.
func (x *server) waitFor(message string) {
	x.t.Helper()
	eventually(x.t, 30*time.Second, fmt.Sprintf("the log has %q", message), func() bool {
		return strings.Contains(x.stderr.String(), message)
	})
}

// vitals returns resident bytes and processor time.
func (x *server) vitals() (resident int, cpu time.Duration) {
	x.t.Helper()
	for line := range strings.Lines(string(must(os.ReadFile(fmt.Sprintf("/proc/%d/status", x.cmd.Process.Pid))))) {
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &resident); err == nil {
			break
		}
	}
	fields := strings.Fields(string(must(os.ReadFile(fmt.Sprintf("/proc/%d/stat", x.cmd.Process.Pid)))))
	var user, system int
	fmt.Sscan(fields[13], &user)
	fmt.Sscan(fields[14], &system)
	return resident << 10, time.Duration(user+system) * 10 * time.Millisecond
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func TestServeFromAMachineWithoutCUDAOn(t *testing.T) {
	dir := setupAlone(t) // no other test uses CUDA meanwhile
	path := filepath.Join(t.TempDir(), "serve.yml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("keep: 5m\n")
	told := filepath.Join(t.TempDir(), "told")
	if err := os.WriteFile(told, nil, 0o666); err != nil || os.Chmod(told, 0o666) != nil {
		t.Fatal(err)
	}
	for dir := filepath.Dir(told); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { // nobody may enter
			t.Fatal(err)
		}
	}
	systemd := listenToNotify(t)
	x := startServe(t, append(os.Environ(), "NOTIFY_SOCKET="+systemd.path, "WATCHDOG_USEC=400000"), "--config", path, "--on-oom", "cat >"+told)
	systemd.waitFor("READY=1")
	systemd.waitFor("WATCHDOG=1")
	x.waitFor("waiting for a process that uses CUDA")
	eventually(t, 90*time.Second, "at most 60 MiB are taken without CUDA", func() bool { // what the start took goes back in 10 s
		resident, cpu := x.vitals()
		if cpu > time.Second*slowness {
			t.Fatalf("without CUDA: %v", cpu)
		}
		return resident <= 60<<20
	})
	write("keep: 7m\nholders: \"off\"\n")
	if err := x.cmd.Process.Signal(unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	x.waitFor(`"msg":"reloaded"`)
	x.waitFor(`"options":["holders"]`)
	systemd.waitFor("RELOADING=1\nMONOTONIC_USEC=")
	systemd.waitFor("READY=1")
	if other, err := exec.Command(binary(t), "serve", "--web.listen-address", "localhost:0", "--run-dir", x.runDir, "--archive=").CombinedOutput(); err == nil || !bytes.Contains(other, []byte("another vramprof serve is running")) {
		t.Errorf("a second one: %v, %s", err, other)
	}
	p := startTarget(t, dir.Env(t, 1, 1<<30), dir.Program("alloc_c"), writeFile(t, "script", "ready\nwait\nfail 1000000000000\nwait\n"))
	x.waitFor(`"msg":"tracing"`)
	p.expectReady()
	p.next()
	var alert struct {
		Event     string
		PID       int
		Requested uint64 `json:"requested_bytes"`
		Stack     []string
	}
	eventually(t, 3*time.Minute, "the command of --on-oom runs", func() bool {
		text, _ := os.ReadFile(told)
		return json.Unmarshal(text, &alert) == nil
	})
	if alert.Event != "oom" || alert.PID != p.pid() || alert.Requested != 1e12 || !strings.Contains(strings.Join(alert.Stack, "\n"), "cudaMalloc") {
		t.Errorf("the command got %+v", alert)
	}
	x.waitFor(`"msg":"out of memory","pid":`)
	p.Process.Kill()
	if err := x.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	x.wait()
	systemd.waitFor("STOPPING=1")
	for line := range strings.Lines(x.stderr.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("the log has %q, which is not JSON", line)
		}
	}
	if left, _ := os.ReadDir(x.runDir); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// notified is a socket to which a service reports its state, as systemd has it.
type notified struct {
	states chan string
	t      *testing.T
	path   string
}

func listenToNotify(t *testing.T) *notified {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	n := &notified{states: make(chan string, 10000), t: t, path: path}
	go func() { // as systemd does: a queue that is full delays the sender
		for state := make([]byte, 256); ; {
			size, err := socket.Read(state)
			if err != nil {
				return
			}
			n.states <- string(state[:size])
		}
	}()
	return n
}

// waitFor waits for a state that begins with text.
func (n *notified) waitFor(text string) {
	n.t.Helper()
	late := time.After(20 * time.Second * slowness)
	for {
		select {
		case state := <-n.states:
			if strings.HasPrefix(state, text) {
				return
			}
		case <-late:
			n.t.Fatalf("systemd was not told %q", text)
		}
	}
}
