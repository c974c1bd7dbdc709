// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/serve/web"
)

func TestServiceHasTheRightsThatServeKeeps(t *testing.T) {
	unit := string(readText(t, packaging, "systemd", "vramprof.service"))
	line := regexp.MustCompile(`(?m)^CapabilityBoundingSet=(.*)$`).FindStringSubmatch(unit)
	if line == nil {
		t.Fatal("the service bounds no capabilities")
	}
	held := strings.Fields(line[1])
	for _, name := range documentedCapabilities(t) {
		if !slices.Contains(held, "CAP_"+name) {
			t.Errorf("the service lacks CAP_%s", name)
		}
	}
	ambient := regexp.MustCompile(`(?m)^AmbientCapabilities=(.*)$`).FindStringSubmatch(unit)
	if ambient == nil || ambient[1] != line[1] || !regexp.MustCompile(`(?m)^User=vramprof$`).MatchString(unit) {
		t.Error("the service does not run with its capabilities as a user of its own")
	}
	if users := string(readText(t, packaging, "systemd", "sysusers.conf")); !regexp.MustCompile(`(?m)^u vramprof `).MatchString(users) {
		t.Error("the packages create no user for the service")
	}
	if slices.Contains(held, "CAP_DAC_OVERRIDE") || slices.Contains(held, "CAP_SYS_MODULE") || slices.Contains(held, "CAP_NET_ADMIN") {
		t.Errorf("the service may do too much: %v", held)
	}
	alerts := regexp.MustCompile(`(?m)^CapabilityBoundingSet=(.*)$`).FindStringSubmatch(string(readText(t, packaging, "systemd", "alerts.conf")))
	if alerts == nil {
		t.Fatal("alerts.conf adds no capabilities")
	}
	for _, name := range strings.Fields(alerts[1]) {
		if slices.Contains(held, name) {
			t.Errorf("the service has %s without alerts.conf", name)
		}
	}
}

func TestServiceStartsServeWithAConfigurationThatIsValid(t *testing.T) {
	unit := string(readText(t, packaging, "systemd", "vramprof.service"))
	if !regexp.MustCompile(`(?m)^ExecStart=/usr/bin/vramprof serve --config /etc/vramprof/serve.yml$`).MatchString(unit) {
		t.Error("the service does not start vramprof serve with its configuration")
	}
	text := string(readText(t, packaging, "systemd", "serve.yml"))
	all := regexp.MustCompile(`(?m)^# ([a-z.-]+: )`).ReplaceAllString(text, "$1") // what is commented out, too
	for _, text := range []string{text, all} {
		if _, err := parseServeConfig("serve.yml", []byte(text)); err != nil {
			t.Error(err)
		}
	}
}

func TestServiceIsWellFormed(t *testing.T) {
	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze")
	}
	out, err := exec.Command(verify, "verify", "--man=no", packaging+"/systemd/vramprof.service").CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(line, "/usr/bin/vramprof is not executable") { // it is not installed here
			t.Errorf("%v: %s", err, line)
		}
	}
	out, err = exec.Command(verify, "security", "--offline=true", "--threshold=29", packaging+"/systemd/vramprof.service").CombinedOutput()
	if err != nil && !strings.Contains(string(out), "unrecognized option") { // of systemd before 250
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		t.Errorf("%v: %s", err, lines[len(lines)-1])
	}
}

func TestASystemdThatDoesNotReadHoldsUpNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	n := newNotifier()
	n.wait = time.Millisecond
	for range 600 { // more than the socket's queue has; without an end of the wait the test never ends
		n.tell("WATCHDOG=1")
	}
	state := make([]byte, 64)
	if size, err := socket.Read(state); err != nil || string(state[:size]) != "WATCHDOG=1" {
		t.Errorf("systemd was told %q, %v", state[:size], err)
	}
}

// TestAStuckWorkerIsNotReadyAndFeedsNoWatchdog: serve found no new job, and said that all was well.
func TestAStuckWorkerIsNotReadyAndFeedsNoWatchdog(t *testing.T) {
	var age, looks atomic.Int64
	s := &server{jobAge: func() time.Duration { looks.Add(1); return time.Duration(age.Load()) }}
	s.ready.Store(true)
	s.tracing.Store(true)
	pages := web.New(web.Config{Ready: s.isReady}).Handler()
	for _, c := range []struct {
		age  time.Duration
		code int
	}{{readyAge - 1, http.StatusOK}, {readyAge, http.StatusServiceUnavailable}, {0, http.StatusOK}} {
		age.Store(int64(c.age))
		w := httptest.NewRecorder()
		pages.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/-/ready", nil))
		if w.Code != c.code {
			t.Errorf("the oldest job has waited %v: %d, want %d", c.age, w.Code, c.code)
		}
	}

	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	n := newNotifier()
	n.every = time.Millisecond
	age.Store(int64(aliveAge))
	ctx, end := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	watch.Go(func() { n.watch(ctx, s.alive) })
	for first := looks.Load(); looks.Load() < first+3; time.Sleep(time.Millisecond) {
	}
	end()
	watch.Wait()
	n.stopping()
	state := make([]byte, 64)
	if size, err := socket.Read(state); err != nil || string(state[:size]) != "STOPPING=1" {
		t.Errorf("systemd was told %q, %v", state[:size], err)
	}
}

func TestConfigurationsWithMistakesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"kep: 3m":              `unknown option "kep"`,
		"config: other.yml":    `unknown option "config"`,
		"keep: {a: 1}":         "neither a value nor a list",
		"keep: [[1]]":          "neither a value nor a list",
		"keep: 1m\nkeep: 2m":   "already set",
		"- keep":               "cannot unmarshal",
		"keep: &a [*a]":        "",
		"web.listen-address: ": "",
	} {
		_, err := parseServeConfig("serve.yml", []byte(text))
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzServeConfig(f *testing.F) {
	f.Add([]byte("keep: 30m\nweb.listen-address: [\":9836\", localhost:1]\nverbose: true\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		values, err := parseServeConfig("serve.yml", text)
		if err != nil {
			return
		}
		for name, list := range values {
			if name == "" || len(list) > len(text) {
				t.Errorf("%q: %d values of %d bytes", name, len(list), len(text))
			}
		}
	})
}
