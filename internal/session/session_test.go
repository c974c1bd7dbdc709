// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/tracer/preflight"
)

// machine is one on which vramprof can trace.
func machine() preflight.Env {
	return preflight.Env{
		Root: fstest.MapFS{
			"sys/kernel/btf/vmlinux":                   {},
			"sys/bus/event_source/devices/uprobe/type": {Data: []byte("9\n")},
			"proc/self/status":                         {Data: []byte("Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n")},
			"proc/self/uid_map":                        {Data: []byte("0 0 4294967295\n")},
			"proc/self/ns/pid":                         {Data: []byte("pid:[4026531836]"), Mode: fs.ModeSymlink},
		},
		Arch: "amd64", Release: "6.8.0-45-generic", Version: "#45-Ubuntu SMP",
	}
}

func TestRequireHostPassesWhereTracingWorks(t *testing.T) {
	warnings, err := RequireHost(t.Context(), machine())
	if err != nil || len(warnings) != 0 {
		t.Errorf("warnings %q, error %v", warnings, err)
	}
}

// statusOf returns the exit code that an error asks for.
func statusOf(err error) int {
	mark, _ := fault.Of(err)
	return mark.Status
}

// TestAnInterruptedCheckBlamesNoKernel: Ctrl-C ends the self-test, which says nothing of return
// probes.
func TestAnInterruptedCheckBlamesNoKernel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	env := machine()
	env.SelfTest = func(ctx context.Context) error { cancel(); return ctx.Err() }
	_, err := RequireHost(ctx, env)
	if err == nil || err.Error() != "interrupted before the session began" {
		t.Errorf("%v", err)
	}
}

func TestRequireHostEndsWithStatus4AndOneLineThatNamesWhatIsMissing(t *testing.T) {
	without := func(name string) func(*preflight.Env) {
		return func(e *preflight.Env) { delete(e.Root.(fstest.MapFS), name) }
	}
	for _, c := range []struct {
		change func(*preflight.Env)
		want   []string
	}{
		{without("sys/kernel/btf/vmlinux"), []string{"BTF: ", "(use a kernel with CONFIG_DEBUG_INFO_BTF=y"}},
		{without("sys/bus/event_source/devices/uprobe/type"), []string{"uprobes: ", "(use a kernel with CONFIG_UPROBE_EVENTS=y"}},
		{func(e *preflight.Env) { e.Release, e.Version = "5.4.0", "" }, []string{"kernel: Linux 5.4.0 is too old", "(use Linux 5.10 or newer)"}},
		{func(e *preflight.Env) { e.Arch = "riscv64" }, []string{"architecture: riscv64 is not supported"}},
		{func(e *preflight.Env) {
			e.SelfTest = func(context.Context) error { return preflight.ErrReturnProbeKills }
		}, []string{"return probes: this kernel kills programs under seccomp"}},
	} {
		env := machine()
		c.change(&env)
		_, err := RequireHost(t.Context(), env)
		if statusOf(err) != preflight.ExitMissing {
			t.Errorf("exit code %d of %v, want %d", statusOf(err), err, preflight.ExitMissing)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q, want one line with %q", err, want)
			}
		}
	}
}

func TestRequireHostWarnsOfWhatMayNotWork(t *testing.T) {
	env := machine()
	env.Features = []preflight.Feature{{Name: "uprobe_multi", Have: func() error { return errors.New("no") }, Without: "detaching is slow"}}
	warnings, err := RequireHost(t.Context(), env)
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "detaching is slow") {
		t.Errorf("warnings %q, error %v", warnings, err)
	}
}
