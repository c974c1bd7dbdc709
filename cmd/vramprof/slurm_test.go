// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// runSlurm runs a script of packaging/slurm, which must succeed whatever happens: Slurm drains a
// node whose prolog or epilog fails.
func runSlurm(t *testing.T, script, reports string, env ...string) {
	t.Helper()
	if _, err := os.Stat("/etc/vramprof/slurm.conf"); err == nil {
		t.Skip("this machine has a configuration of its own")
	}
	cmd := exec.Command("bash", filepath.Join(packaging, "slurm", script))
	cmd.Env = append([]string{"VRAMPROF_REPORTS=" + reports, "VRAMPROF_SOCKET=/nonexistent", "SLURMD_NODENAME=node/1"}, env...)
	begin := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s with %q: %v\n%s", script, env, err, out)
	}
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("%s with %q took %v", script, env, took)
	}
}

// fakeVramprof returns a program in place of vramprof.
func fakeVramprof(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "vramprof")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSlurmScriptsNeverFail(t *testing.T) {
	reports := filepath.Join(t.TempDir(), "reports")
	for _, script := range []string{"vramprof-prolog.sh", "vramprof-epilog.sh"} {
		for _, env := range [][]string{nil, {"SLURM_JOB_ID=../../../tmp/x"}, {"SLURM_JOB_ID=7;reboot"}, {"SLURM_JOB_ID=7", "VRAMPROF_RECORD=no"},
			{"SLURM_JOB_ID=7", "VRAMPROF_RECORD=no", "VRAMPROF_REPORTS=/proc/nowhere"}} {
			runSlurm(t, script, reports, env...)
		}
	}
	if list, _ := os.ReadDir(reports); len(list) > 0 {
		t.Errorf("it has written %v", list)
	}
}

func TestSlurmsEpilogWritesTheReportsOfAJob(t *testing.T) {
	for _, c := range []struct{ name, vramprof, want string }{
		{"both", `echo "$@"`, "report " + "REPORTS/7.vram --job 7"},
		{"it fails", "echo half; exit 5", ""},
		{"nothing", "exit 0", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			reports := t.TempDir()
			// As if the prolog had started vramprof record, which has ended.
			if err := os.WriteFile(filepath.Join(reports, "7.pid"), []byte("4194305\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			old := time.Now().Add(-31 * 24 * time.Hour)
			for _, name := range []string{"3.node.txt", "notes.txt"} {
				path := filepath.Join(reports, name)
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Chtimes(path, old, old); err != nil {
					t.Fatal(err)
				}
			}
			runSlurm(t, "vramprof-epilog.sh", reports, "SLURM_JOB_ID=7", "VRAMPROF="+fakeVramprof(t, c.vramprof))
			text, err := os.ReadFile(filepath.Join(reports, "7.node_1.txt"))
			if got := strings.TrimSpace(string(text)); got != strings.ReplaceAll(c.want, "REPORTS", reports) {
				t.Errorf("the report is %q, %v; want %q", got, err, c.want)
			}
			for _, name := range []string{"7.pid", "7.vram", "3.node.txt"} {
				if _, err := os.Stat(filepath.Join(reports, name)); err == nil {
					t.Errorf("it leaves %s", name)
				}
			}
			if _, err := os.Stat(filepath.Join(reports, "notes.txt")); err != nil {
				t.Error("it removed a file that is no report")
			}
			if hidden, _ := filepath.Glob(filepath.Join(reports, ".7.*")); len(hidden) > 0 {
				t.Errorf("it leaves %v", hidden)
			}
		})
	}
}
