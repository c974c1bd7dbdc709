// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/realtorch"
	reportjson "github.com/vramprof/vramprof/report/json"
)

// command runs vramprof; it returns its output and whether it succeeded.
func command(t *testing.T, env []string, args ...string) (string, bool) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = env
	out, err := cmd.Output()
	return string(out), err == nil
}

func asked(t *testing.T, args ...string) (r reportjson.WhatIfReport, ok bool) {
	t.Helper()
	text, ok := command(t, os.Environ(), append([]string{"whatif", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if len(r.Jobs) != 1 {
		t.Fatalf("%d jobs\n%s", len(r.Jobs), text)
	}
	return r, ok
}

// TestTheCommandSaysWhatTheJobReallyDoes: a capture of record --for whatif, asked for other
// settings and another GPU, against runs with these settings and on that GPU.
func TestTheCommandSaysWhatTheJobReallyDoes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("tracing needs root")
	}
	x := runnerOf(t, "whatif.py", "serve")
	job := []string{"vary", "--steps", "8"}
	env := append(x.root.Env(t, 1, gpuMemory), "PYTORCH_CUDA_ALLOC_CONF=")
	file := filepath.Join(t.TempDir(), "run.vram")
	inner := x.root.Command(env, "whatif.py", job...)
	if out, ok := command(t, env, append([]string{"record", "--for", "whatif", "--holders=off", "--no-oom", "-o", file, "--"}, inner.Args...)...); !ok {
		t.Fatal(out)
	}
	real := x.job(t, "", gpuMemory, job[0], job[1:]...)
	context := real.Total - real.Capacity
	const small = 800 * mib
	r, ok := asked(t, "--set", "expandable_segments:True", "--empty-cache", "2", "--gpu", "1100MiB", file)
	said := r.Jobs[0]
	if x := &said; !ok || len(x.Refused) > 0 || len(x.Scenarios) != 3 || x.Allocations != real.Allocations || x.Steps != 8 {
		t.Fatalf("%+v", said)
	}
	if said.Other == nil || *said.Other != context || said.Capacity == nil || *said.Capacity != small {
		t.Errorf("%+v of other memory, %v for PyTorch; the context has %d", said.Other, said.Capacity, context)
	}
	for i, args := range [][]string{nil, nil, {"--empty", "2"}} {
		s := &said.Scenarios[i]
		conf := ""
		if i == 1 {
			conf = s.Name
		}
		got := x.job(t, conf, gpuMemory, job[0], append(job[1:], args...)...)
		limited := x.job(t, conf, small+context, job[0], append(job[1:], args...)...)
		if got.Reserved < s.Reserved.Low || got.Reserved > s.Reserved.High {
			t.Errorf("%s: said %+v, really %d", s.Name, s.Reserved, got.Reserved)
		}
		if failed := limited.Error != ""; failed != (s.Verdict == verdicts[OutOfMemory]) && s.Verdict != verdicts[Depends] {
			t.Errorf("%s on %d: %s, really %q", s.Name, small, s.Verdict, limited.Error)
		}
		t.Logf("%s: said %+v, really %d; on %d: %s, really %q", s.Name, s.Reserved, got.Reserved, small, s.Verdict, limited.Error)
	}
}

// TestAJobThatEndedIsExplainedAtItsPeak: nothing is left at the end of a capture of a job that
// ended by itself. Purposes are those of the peak, and the tensors among them add up to the job's
// own.
func TestAJobThatEndedIsExplainedAtItsPeak(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("tracing needs root")
	}
	run := runnerOf(t, remedyScript("serve"))
	_, file, done := captureRemedied(t, run.root, "leaking")
	defer done()
	var r reportjson.ExplainReport
	text, _ := command(t, os.Environ(), "explain", "--json", file)
	if err := json.Unmarshal([]byte(text), &r); err != nil || len(r.Balances) != 1 {
		t.Fatalf("%v\n%s", err, text)
	}
	var tensors int64
	by := map[string]int64{}
	for _, row := range r.Balances[0].Rows {
		switch by[row.Purpose] += row.Bytes; row.Purpose {
		case "weights", "gradients", "optimizer_state", "buffers", "activations", "backward", "inputs", "kv_cache", "workspaces", "tensors":
			tensors += row.Bytes
		}
	}
	if real := run.remedied(t, gpuMemory, "leaking"); tensors != int64(real.Allocated) || by["activations"] == 0 || by["weights"] == 0 {
		t.Errorf("%d bytes of tensors, the job had %d: %v", tensors, real.Allocated, by)
	}
	for _, name := range []string{"explain", "report"} {
		if text, ok := command(t, os.Environ(), name, file); !ok || !strings.Contains(text, "What it was for at ") || !strings.Contains(text, "activations  ") {
			t.Errorf("%s has no purposes at the peak:\n%s", name, text)
		}
	}
}

// TestHistoriesThatCannotBeReplayedAreRefused: with the reason, the remedy, and no figure.
func TestHistoriesThatCannotBeReplayedAreRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("tracing needs root")
	}
	root := realtorch.Prepare(t)
	env := append(root.Env(t, 1, gpuMemory), "PYTORCH_CUDA_ALLOC_CONF=")
	dir := t.TempDir()
	sampled, history := filepath.Join(dir, "sampled.vram"), filepath.Join(dir, "history.pickle")
	inner := root.Command(env, "whatif.py", "plain", "--steps", "2", "--snapshot", history)
	if out, ok := command(t, env, append([]string{"record", "--holders=off", "--no-oom", "-o", sampled, "--"}, inner.Args...)...); !ok {
		t.Fatal(out)
	}
	for file, want := range map[string][]string{sampled: {"no_sizes", "unknown_settings"}, history: {"unknown_version"}} {
		r, ok := asked(t, file)
		x := r.Jobs[0]
		var got []string
		for _, c := range x.Refused {
			got = append(got, c.Code)
			if c.Remedy == "" || c.Text == "" {
				t.Errorf("%+v has no remedy", c)
			}
		}
		for _, code := range want {
			if ok || len(x.Scenarios) > 0 || !slices.Contains(got, code) {
				t.Errorf("%s: refused %v, %d figures, want %s", filepath.Base(file), got, len(x.Scenarios), code)
			}
		}
		text, _ := command(t, os.Environ(), "whatif", file)
		if !strings.Contains(text, "cannot be replayed") || strings.Contains(text, "reserves") {
			t.Error(text)
		}
	}
	if r, ok := asked(t, "--torch", "2.7", history); ok || r.Jobs[0].Refused[0].Code != "other_version" {
		t.Errorf("%+v", r)
	}
}
