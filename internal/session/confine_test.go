// SPDX-License-Identifier: Apache-2.0

package session

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer"
	"github.com/vramprof/vramprof/tracer/sandbox"
)

func TestOnlyWhatTracingNeedsIsKept(t *testing.T) {
	if os.Geteuid() != 0 || features.HaveBPFLinkUprobeMulti() != nil {
		t.Skip("needs root and Linux 6.6")
	}
	const all = sandbox.Set(1<<41 - 1)
	without := func(capabilities ...int) sandbox.Set { return all &^ sandbox.NewSet(capabilities...) }
	own, sticky, foreign := t.TempDir(), t.TempDir(), t.TempDir()
	files := map[string]string{"own": filepath.Join(own, "f"), "sticky": filepath.Join(sticky, "f"), "foreign": filepath.Join(foreign, "f")}
	for _, err := range []error{
		os.WriteFile(files["sticky"], nil, 0o600), os.Chown(files["sticky"], 1000, 1000), os.Chown(sticky, 1001, 1001),
		os.Chmod(sticky, 0o777|os.ModeSticky), os.Chown(foreign, 1000, 1000), os.Chmod(foreign, 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	command := tracer.Config{Command: []string{"true"}}
	for _, c := range []struct {
		name   string
		held   sandbox.Set
		config tracer.Config
		writes string
		force  bool
		want   sandbox.Set
	}{
		{"root", all, tracer.Config{}, "own", false, Tracing},
		{"command", all, command, "own", false, Tracing | sandbox.NewSet(unix.CAP_KILL)},
		{"folder of another", all, tracer.Config{}, "foreign", false, Tracing | override},
		{"file of another in a folder like /tmp", all, tracer.Config{}, "sticky", false, Tracing},
		{"to be replaced", all, tracer.Config{}, "sticky", true, Tracing | sandbox.NewSet(unix.CAP_FOWNER)},
		{"older root", without(unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_CHECKPOINT_RESTORE), tracer.Config{}, "own", false,
			Tracing&^sandbox.NewSet(unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_CHECKPOINT_RESTORE) | admin},
		{"stand-in for reading", without(unix.CAP_DAC_READ_SEARCH), tracer.Config{}, "own", false,
			Tracing&^sandbox.NewSet(unix.CAP_DAC_READ_SEARCH) | override},
		{"nothing that was not there", Tracing &^ sandbox.NewSet(unix.CAP_IPC_LOCK), command, "own", false, Tracing &^ sandbox.NewSet(unix.CAP_IPC_LOCK)},
	} {
		s := &Session{Config: Config{Trace: c.config, Writes: []string{files[c.writes]}, Force: c.force}}
		if got := s.keep(c.held); got != c.want {
			t.Errorf("%s: keeps %x, want %x", c.name, uint64(got), uint64(c.want))
		}
	}
}

func TestOnlyWhatReadingNeedsIsKept(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	const all = sandbox.Set(1<<41 - 1)
	foreign := t.TempDir()
	if err := os.Chown(foreign, 1000, 1000); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(foreign, 0o755); err != nil {
		t.Fatal(err)
	}
	written := []string{filepath.Join(foreign, "f")}
	restore, search := sandbox.NewSet(unix.CAP_CHECKPOINT_RESTORE), sandbox.NewSet(unix.CAP_DAC_READ_SEARCH)
	for _, c := range []struct {
		name   string
		held   sandbox.Set
		writes []string
		want   sandbox.Set
	}{
		{"root", all, nil, reading},
		{"root, into the folder of another", all, written, reading | override},
		{"older root", all &^ restore, nil, reading&^restore | admin},
		{"stand-in for reading", all &^ search, nil, reading&^search | override},
		{"nothing that was not there", restore, written, restore},
		{"an ordinary user", 0, nil, 0},
	} {
		if got := keepFor(c.held, reading, nil, c.writes, false); got != c.want {
			t.Errorf("%s: keeps %x, want %x", c.name, uint64(got), uint64(c.want))
		}
	}
}
