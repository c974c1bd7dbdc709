// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/internal/realtorch"
	"github.com/vramprof/vramprof/internal/simdriver"
	reportjson "github.com/vramprof/vramprof/report/json"
)

// recorded runs a program that prints "loaded" when it has its libraries, and "ready" when it has
// memory, each time waiting for a line. It returns what the memory is for, and what the program
// wrote to stderr.
func recorded(t *testing.T, cmd *exec.Cmd) (*reportjson.ExplainedPart, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.vram")
	var log output
	cmd.Stderr = &log
	target := startCommand(t, cmd)
	if got := target.line(); got != "loaded" {
		t.Fatalf("%q\n%s", got, log.String())
	}
	s := start(t, cmd.Env, "record", "--driver-objects", "-o", path, "-p", fmt.Sprint(target.pid())).ready()
	fmt.Fprintln(target.stdin)
	if got := target.line(); got != "ready" {
		t.Fatalf("%q\n%s", got, log.String())
	}
	s.after(1500 * time.Millisecond) // a reading of the driver
	s.stop()
	env := cmd.Env
	b := explained(t, env, path)
	if b.NVML {
		var sum int64
		for i := range b.Rows {
			sum += b.Rows[i].Bytes
		}
		if sum != b.Bytes {
			t.Errorf("rows of %d bytes, NVML's figure is %d", sum, b.Bytes)
		}
	}
	return b, log.String()
}

// rowNamed returns the row of a name; an empty one if there is none.
func rowNamed(b *reportjson.ExplainedPart, name string) reportjson.PurposeRow {
	for _, r := range b.Rows {
		if r.Name == name {
			return r
		}
	}
	return reportjson.PurposeRow{}
}

// TestLlamasContextIsSplitAsItsLogSays: weights, KV cache and compute buffers of llama.cpp, for two
// sizes of the context.
func TestLlamasContextIsSplitAsItsLogSays(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("tracing needs root")
	}
	sim := simdriver.Build(t, "--math", "535")
	found, err := exec.Command("../../../../scripts/real-llama.sh", "--offline").Output()
	folder := strings.TrimSpace(string(found))
	if err != nil || strings.HasPrefix(folder, "skipped:") {
		t.Skip(folder, err)
	}
	for _, tokens := range []int{4096, 12288} {
		t.Run(fmt.Sprint(tokens), func(t *testing.T) {
			script, _ := filepath.Abs("../../../../testdata/names/llama.py")
			job := exec.Command("/usr/bin/python3", script, folder, filepath.Join(t.TempDir(), "model.gguf"), fmt.Sprint(tokens))
			job.Env = sim.Env(t, "t4", 1)
			b, out := recorded(t, job)
			for _, c := range []struct{ row, log, shape, line string }{
				{"weights (llama.cpp)", "model", "weights", "load (llama.py:"},
				{"KV cache (llama.cpp)", "KV", "kv", "open_context (llama.py:"},
				{"ggml compute buffers", "compute", "", "open_context (llama.py:"},
			} {
				row := rowNamed(b, c.row)
				said := regexp.MustCompile(` CUDA0 ` + c.log + ` buffer size = +([0-9.]+) MiB`).FindStringSubmatch(out)
				if said == nil {
					t.Fatalf("llama.cpp's log has no %s buffer:\n%s", c.log, out)
				}
				if got := fmt.Sprintf("%.2f", float64(row.Bytes)/(1<<20)); got != said[1] {
					t.Errorf("%s: %s MiB, llama.cpp says %s", c.row, got, said[1])
				}
				t.Logf("%s: %d bytes; llama.cpp says %s MiB", c.row, row.Bytes, said[1])
				if c.shape != "" {
					shape := regexp.MustCompile(`(?m)^` + c.shape + ` (\d+)$`).FindStringSubmatch(out)
					if shape == nil || shape[1] != strconv.FormatInt(row.Bytes, 10) {
						t.Errorf("%s: %d bytes, by its tensors' shapes %v", c.row, row.Bytes, shape)
					}
				}
				if len(row.Parts) != 1 || !strings.HasPrefix(row.Parts[0].Line, c.line) {
					t.Errorf("%s: %+v, want the line %s", c.row, row.Parts, c.line)
				}
			}
			checkPart(t, b, "cuBLAS", "handles", "evaluate (llama.py:")
			checkPart(t, b, "ggml pool", "", "evaluate (llama.py:")
		})
	}
}

// checkPart fails if a row has no part that a line allocated.
func checkPart(t *testing.T, b *reportjson.ExplainedPart, row, part, line string) {
	t.Helper()
	for _, p := range rowNamed(b, row).Parts {
		if p.Part == part && strings.HasPrefix(p.Line, line) && p.Bytes > 0 {
			t.Logf("%s, %s: %d bytes by %s", row, part, p.Bytes, p.Line)
			return
		}
	}
	t.Errorf("%s: %+v, want %s by %s", row, rowNamed(b, row).Parts, part, line)
}

// TestNamesOfNVIDIAsLibraries: what each takes has its name, its part, and the line of the program
// that called it.
func TestNamesOfNVIDIAsLibraries(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("tracing needs root")
	}
	sim := simdriver.Build(t, "--math", "535")
	root := realtorch.Prepare(t) // its Python has the libc that NCCL needs
	job := root.Command(sim.Env(t, "t4", 1), "../names/libraries.py")
	job.Args[1] = filepath.Join(filepath.Dir(realtorch.Script("x")), "../names/libraries.py")
	b, _ := recorded(t, job)
	for _, c := range [][3]string{
		{"NCCL", "communicators", "world (libraries.py:"},
		{"NCCL", "driver's own", "world (libraries.py:"},
		{"cuBLAS", "handles", "handle (libraries.py:"},
		{"cuFFT", "plans", "transform (libraries.py:"},
		{"cuSOLVER", "handles", "solver (libraries.py:"},
		{"cuRAND", "generators", "random (libraries.py:"},
		{"other CUDA", "", "array (libraries.py:"},
	} {
		checkPart(t, b, c[0], c[1], c[2])
	}
	if t.Failed() {
		for _, r := range b.Rows {
			t.Logf("%s %d %+v", r.Name, r.Bytes, r.Parts)
		}
	}
}

// TestTheKVCacheIsNamedAndItsUseIsAsked: which tensors the cache is, by who keeps them, and on
// request how much of it the engine reports as used. Without the flag nobody is asked.
func TestTheKVCacheIsNamedAndItsUseIsAsked(t *testing.T) {
	setup(t)
	root := realtorch.Prepare(t)
	for _, c := range []struct {
		engine, holder, name, metric string
		used                         float64
	}{
		{"vllm", "engine.kv_caches[*]", "vLLM", "vllm:kv_cache_usage_perc", 0.25},
		{"sglang", "engine.token_to_kv_pool.", "SGLang", "sglang:token_usage", 0.5},
	} {
		env := root.Env(t, 1, 1<<30)
		job := root.Command(env, filepath.Join(filepath.Dir(realtorch.Script("x")), "../names/engine.py"), c.engine)
		target := startCommand(t, job)
		var bytes uint64
		if _, err := fmt.Sscanf(target.line(), "ready %d", &bytes); err != nil {
			t.Fatal(err)
		}
		pid := fmt.Sprint(target.pid())
		b := explained(t, env, "-p", pid, "--engine-metrics")
		row := rowNamed(b, "KV cache")
		if uint64(row.Bytes) != bytes || len(row.Parts) == 0 || !strings.HasPrefix(row.Parts[0].Holder, c.holder) {
			t.Errorf("%s: %+v, want %d bytes of %s", c.engine, row, bytes, c.holder)
		}
		if u := b.KVCache; u == nil || u.Engine != c.name || u.Metric != c.metric || u.Used != c.used || u.Bytes != uint64(c.used*float64(bytes)) || u.PID != uint32(target.pid()) {
			t.Errorf("%s: %+v", c.engine, b.KVCache)
		}
		if b := explained(t, env, "-p", pid); b.KVCache != nil {
			t.Errorf("%s was asked without the flag", c.engine)
		}
	}
}

// TestNamesOfPython: arrays of Numba, and the memory of PyTorch's backend cudaMallocAsync, which
// reports no tensors, on the fake CUDA.
func TestNamesOfPython(t *testing.T) {
	setup(t)
	file := filepath.Join(t.TempDir(), "run.vram")
	recordAll := func(t *testing.T, env []string, command ...string) *reportjson.ExplainedPart {
		t.Helper()
		start(t, env, append([]string{"record", "-o", file, "--"}, command...)...).wait()
		defer os.Remove(file)
		return explained(t, env, "--at", "peak", file)
	}
	t.Run("Numba", func(t *testing.T) {
		if found, _ := filepath.Glob("/usr/lib/python3/dist-packages/numba/__init__.py"); found == nil || fakecuda.OnNVIDIA() {
			t.Skip("no numba on the fake CUDA (scripts/install.sh test installs it)")
		}
		script, _ := filepath.Abs("../../../../testdata/holders/numba_arrays.py")
		b := recordAll(t, fakecuda.Build(t).Env(t, 1, 1<<30), "/usr/bin/python3", script, filepath.Join(t.TempDir(), "truth"))
		checkPart(t, b, "Numba", "arrays", "new (numba_arrays.py:")
	})
	t.Run("PyTorch", func(t *testing.T) {
		root := realtorch.Prepare(t)
		job := root.Command(append(root.Env(t, 1, 1<<30), "PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync"), "backends.py", t.TempDir(), "20")
		b := recordAll(t, job.Env, job.Args...)
		checkPart(t, b, "PyTorch, tensors unknown", "", "<module> (backends.py:")
	})
}
