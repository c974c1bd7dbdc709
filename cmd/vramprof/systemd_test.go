// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/serve"
	"github.com/vramprof/vramprof/internal/session"
	"github.com/vramprof/vramprof/tracer/sandbox"
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
	for _, file := range []string{"alerts.conf", "numa.conf"} {
		added := regexp.MustCompile(`(?m)^CapabilityBoundingSet=(.*)$`).FindStringSubmatch(string(readText(t, packaging, "systemd", file)))
		if added == nil {
			t.Fatalf("%s adds no capabilities", file)
		}
		for _, name := range strings.Fields(added[1]) {
			if slices.Contains(held, name) {
				t.Errorf("the service has %s without %s", name, file)
			}
		}
	}
}

// What hides /proc/kallsyms in the unit, numa.conf takes back; see systemd.exec(5).
func TestDropInForNUMAShowsTheKernelsAddresses(t *testing.T) {
	unit, dropIn := string(readText(t, packaging, "systemd", "vramprof.service")), string(readText(t, packaging, "systemd", "numa.conf"))
	for _, setting := range []string{"ProtectKernelLogs", "ProtectKernelTunables"} {
		if strings.Contains(unit, "\n"+setting+"=yes\n") && !strings.Contains(dropIn, "\n"+setting+"=no\n") {
			t.Errorf("numa.conf leaves %s=yes", setting)
		}
	}
	if !strings.Contains(dropIn, "\nAmbientCapabilities=CAP_SYSLOG\n") || session.Tracing.Has(sandbox.NewSet(unix.CAP_SYSLOG)) {
		t.Error("the service lacks CAP_SYSLOG at start, or keeps it")
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
		path := filepath.Join(t.TempDir(), "serve.yml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := serve.ReadConfig(path, isServeOption); err != nil {
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
