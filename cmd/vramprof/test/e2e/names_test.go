// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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
	b, log, _ := recordedTo(t, cmd, filepath.Join(t.TempDir(), "run.vram"))
	return b, log
}

// recordedTo is recorded with a capture that stays. It also returns what the program wrote after
// "ready".
func recordedTo(t *testing.T, cmd *exec.Cmd, path string) (b *reportjson.ExplainedPart, stderr, said string) {
	t.Helper()
	var log output
	cmd.Stderr = &log
	target := startCommand(t, cmd)
	b, said = recordedFrom(t, cmd.Env, target, &log, path)
	return b, log.String(), said
}

// recordedFrom is recordedTo of a program that was started, and that goes on.
func recordedFrom(t *testing.T, env []string, target *target, log *output, path string) (b *reportjson.ExplainedPart, said string) {
	t.Helper()
	if got := target.line(); got != "loaded" {
		t.Fatalf("%q\n%s", got, log.String())
	}
	s := start(t, env, "record", "--driver-objects", "-o", path, "-p", fmt.Sprint(target.pid())).ready()
	fmt.Fprintln(target.stdin)
	said, ready := strings.CutPrefix(target.line(), "ready")
	if !ready {
		t.Fatalf("not ready\n%s", log.String())
	}
	s.after(1500 * time.Millisecond) // a reading of the driver
	s.stop()
	b = explained(t, env, path)
	if b.NVML {
		var sum int64
		for i := range b.Rows {
			sum += b.Rows[i].Bytes
		}
		if sum != b.Bytes {
			t.Errorf("rows of %d bytes, NVML's figure is %d", sum, b.Bytes)
		}
	}
	return b, said
}

// fetched returns the folder of libraries that scripts/real-library.sh has unpacked, and skips the
// test without it.
func fetched(t *testing.T, name string) string {
	t.Helper()
	found, err := exec.Command("../../../../scripts/real-library.sh", "--offline", name).Output()
	folder := strings.TrimSpace(string(found))
	if err != nil || strings.HasPrefix(folder, "skipped:") {
		t.Skip(folder, err)
	}
	return folder
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
	folder := fetched(t, "llama")
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
	for _, r := range b.Rows {
		t.Logf("%s: %d bytes, %+v", r.Name, r.Bytes, r.Parts)
	}
}

// TestNamesOfNVIDIAsLibraries: what each takes has its name, its part, and the line of the program
// that called it.
func TestNamesOfNVIDIAsLibraries(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("tracing needs root")
	}
	sim := simdriver.Build(t, "--math", "535")
	root := realtorch.Prepare(t) // its Python has the libc that NCCL needs
	job := root.Command(sim.Env(t, "t4", 1), namesProgram("libraries.py"))
	b, _ := recorded(t, job)
	for _, c := range [][3]string{
		{"NCCL", "communicators", "world (libraries.py:"},
		{"NCCL", "driver's own", "world (libraries.py:"},
		{"cuBLAS", "handles", "handle (libraries.py:"},
		{"cuFFT", "plans", "transform (libraries.py:"},
		{"cuSOLVER", "handles", "solver (libraries.py:"},
		{"cuRAND", "generators", "random (libraries.py:"},
		{"NCCL", "registered buffers", "buffer (libraries.py:"},
		{"cuSPARSE", "", "factors (libraries.py:"},
		{"NPP, nvJPEG", "", "picture (libraries.py:"},
		{"NPP, nvJPEG", "", "plane (libraries.py:"},
		{"other CUDA", "", "array (libraries.py:"},
	} {
		checkPart(t, b, c[0], c[1], c[2])
	}
}

// TestNamesOfLibrariesWithoutSymbols: ggml in an addon of Node that exports its functions, and ONNX
// Runtime, which exports nearly none.
func TestNamesOfLibrariesWithoutSymbols(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("tracing needs root")
	}
	for _, c := range []struct{ fetch, file, script, row, line string }{
		{"ggml", "index.node", "ggml.py", "ggml", "weights (ggml.py:"},
		{"onnx", "", "onnx.py", "ONNX Runtime", "load (onnx.py:"},
	} {
		t.Run(c.fetch, func(t *testing.T) {
			sim := simdriver.Build(t, "--math", "535")
			folder := fetched(t, c.fetch)
			job := realtorch.Prepare(t).Command(withLibraries(sim.Env(t, "t4", 1), folder), namesProgram(c.script), filepath.Join(folder, c.file))
			var log output
			job.Stderr = &log
			target := startCommand(t, job)
			b, _ := recordedFrom(t, job.Env, target, &log, filepath.Join(t.TempDir(), "run.vram"))
			checkPart(t, b, c.row, "", c.line)
			if c.fetch == "onnx" {
				checkPart(t, b, c.row, "cuBLAS", c.line)
				checkArena(t, job.Env, target, rowNamed(b, c.row).Parts)
			}
		})
	}
}

// checkArena compares ONNX Runtime's arena, as explain -p reads it, with the parts of its row that
// no other library allocated, and with what the program then takes of the arena and gives back.
func checkArena(t *testing.T, env []string, target *target, parts []reportjson.PurposePiece) {
	t.Helper()
	const takes = 1024 // 1,000, rounded up to 256
	var booked uint64
	for _, p := range parts {
		if p.Part == "" {
			booked += p.Bytes
		}
	}
	read := func() reportjson.ArenaUse {
		t.Helper()
		b := explained(t, env, "-p", fmt.Sprint(target.pid()))
		if len(b.Arenas) != 1 || !strings.Contains(strings.Join(b.Notes, "\n"), "ONNX Runtime's arena has ") {
			t.Fatalf("arenas %+v, notes %q", b.Arenas, b.Notes)
		}
		t.Logf("%+v", b.Arenas[0])
		return b.Arenas[0]
	}
	before := read()
	if before.Library != "ONNX Runtime" || before.Bytes != booked || before.InUse < 4<<20 || before.InUse >= before.Bytes || before.Peak < before.InUse {
		t.Errorf("%+v, want the %d bytes of the row, and in use the matrix at least", before, booked)
	}
	for _, c := range []struct {
		said  string
		inUse uint64
	}{{"taken", before.InUse + takes}, {"given", before.InUse}} {
		fmt.Fprintln(target.stdin)
		target.expect(c.said)
		if got := read(); got.InUse != c.inUse || got.Bytes != before.Bytes {
			t.Errorf("%s: %+v, want %d bytes in use of %d", c.said, got, c.inUse, before.Bytes)
		}
	}
}

// TestNamesOfNCCLInAProgram: NCCL that is linked into a program is named by its functions, with the
// line that called it. Without a symbol table nothing names it: what users see then is other CUDA.
func TestNamesOfNCCLInAProgram(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("tracing needs root")
	}
	sim := simdriver.Build(t, "--math", "535")
	for _, strip := range []string{"-g", "-s"} {
		program := filepath.Join(t.TempDir(), "program")
		build := exec.Command("gcc", strip, "-O1", "-o", program, namesProgram("nccl_static.c"), filepath.Join(string(sim), "libnccl_static.a"),
			filepath.Join(string(sim), "libcudart.so.12"), "-lstdc++", "-lm", "-lpthread", "-ldl", "-lrt", "-Wl,--allow-shlib-undefined")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		job := exec.Command(program)
		job.Env = sim.Env(t, "t4", 1)
		b, _ := recorded(t, job)
		if strip == "-g" {
			checkPart(t, b, "NCCL", "registered buffers", "buffer (nccl_static.c:")
			checkPart(t, b, "NCCL", "driver's own", "world (nccl_static.c:")
			continue
		}
		if row := rowNamed(b, "NCCL"); row.Bytes != 0 {
			t.Errorf("a program without symbols has %+v", row)
		}
		if row := rowNamed(b, "other CUDA"); row.Bytes < 8<<20 {
			t.Errorf("a program without symbols has %+v", row)
		}
	}
}

// namesProgram returns the path of a program in testdata/names.
func namesProgram(file string) string {
	return filepath.Join(filepath.Dir(realtorch.Script("x")), "../names", file)
}

// TestNamesOfNumbasModules: what the driver takes for a module that Numba loads.
func TestNamesOfNumbasModules(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("tracing needs root")
	}
	if found, _ := filepath.Glob("/usr/lib/python3/dist-packages/numba/__init__.py"); found == nil {
		t.Skip("no numba (scripts/install.sh test installs it)")
	}
	job := exec.Command("/usr/bin/python3", namesProgram("numba_module.py"))
	job.Env = simdriver.Build(t, "535").Env(t, "t4", 1)
	b, _ := recorded(t, job)
	checkPart(t, b, "Numba", "driver's own", "load (numba_module.py:")
}

// TestNamesOfPyCUDA: its arrays, its pool, and what the driver takes for a module that it loads.
func TestNamesOfPyCUDA(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("tracing needs root")
	}
	folder := fetched(t, "pycuda")
	job := exec.Command("/usr/bin/python3", namesProgram("pycuda_arrays.py"))
	job.Env = append(withLibraries(simdriver.Build(t, "535").Env(t, "t4", 1), folder), "PYTHONPATH="+filepath.Join(folder, "dist-packages"))
	b, _ := recorded(t, job)
	checkPart(t, b, "PyCUDA", "", "array (pycuda_arrays.py:")
	checkPart(t, b, "PyCUDA", "", "pooled (pycuda_arrays.py:")
	checkPart(t, b, "PyCUDA", "driver's own", "load (pycuda_arrays.py:")
}

// withLibraries returns an environment in which the loader also looks in a folder.
func withLibraries(env []string, folder string) []string {
	for i, v := range env {
		if strings.HasPrefix(v, "LD_LIBRARY_PATH=") {
			env[i] += ":" + folder
		}
	}
	return env
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
		job := root.Command(env, namesProgram("engine.py"), c.engine)
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
	for _, backend := range []string{"backend:cudaMallocAsync", "pluggable"} {
		t.Run("PyTorch "+backend, func(t *testing.T) {
			root := realtorch.Prepare(t)
			env, args := root.Env(t, 1, 1<<30), []string{t.TempDir(), "700"} // the first stacks may be truncated
			if backend == "pluggable" {
				library := filepath.Join(t.TempDir(), "pluggable.so")
				build := exec.Command("gcc", "-shared", "-fPIC", "-fno-optimize-sibling-calls", "-o", library, namesProgram("pluggable.c"), "-l:libcudart.so.12")
				for _, v := range env {
					if folders, ok := strings.CutPrefix(v, "LD_LIBRARY_PATH="); ok {
						build.Args = append(build.Args, "-L"+strings.Split(folders, ":")[0])
					}
				}
				if out, err := build.CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				args = append(args, library)
			} else {
				env = append(env, "PYTORCH_CUDA_ALLOC_CONF="+backend)
			}
			job := root.Command(env, "backends.py", args...)
			b := recordAll(t, job.Env, job.Args...)
			checkPart(t, b, "PyTorch, tensors unknown", "", "<module> (backends.py:")
		})
	}
}

// TestNamesOfCUDAGraphs: the pool that PyTorch's graphs share has the size of each, as PyTorch has
// it, at the line that captured them. Workspaces of cuBLAS have the line that first used a stream,
// and executables of graphs the line that made them.
func TestNamesOfCUDAGraphs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("tracing needs root")
	}
	sim := simdriver.Build(t, "--math", "535")
	root := realtorch.Prepare(t)
	path := filepath.Join(t.TempDir(), "run.vram")
	env := sim.Env(t, "t4", 1)
	for _, v := range root.Env(t, 1, 8<<30) {
		if folders, ok := strings.CutPrefix(v, "LD_LIBRARY_PATH="); ok { // of the stubs only cuDNN, MPI and Redis are used
			env = withLibraries(env, strings.Split(folders, ":")[0])
		} else if strings.HasPrefix(v, "PYTHON") {
			env = append(env, v)
		}
	}
	job := root.Command(env, namesProgram("graphs.py"))
	b, _, said := recordedTo(t, job, path)
	var want, got []uint64
	if err := json.Unmarshal([]byte(said), &want); err != nil {
		t.Fatal(err)
	}
	want = slices.DeleteFunc(want, func(n uint64) bool { return n == 0 })
	checkPart(t, b, "CUDA graphs", "graph pool 1", "capture (graphs.py:")
	checkPart(t, b, "CUDA graphs", "graph executables", "capture (graphs.py:")
	checkPart(t, b, "workspaces", "cuBLAS", "multiply (graphs.py:")
	checkPart(t, b, "workspaces", "cuBLAS on stream 1", "beside (graphs.py:")
	view, err := exec.Command(binary(t), "report", path, "--view", "cache").Output()
	if err != nil {
		t.Fatal(err)
	}
	_, view, _ = bytes.Cut(view, []byte("Private pools"))
	t.Logf("%.600s", view)
	out, err := exec.Command(binary(t), "leaks", "--json", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	var r reportjson.LeaksReport
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	for _, a := range r.Allocators {
		for _, c := range a.Captures {
			if !strings.Contains(c.Line, "graphs.py:") || !strings.HasSuffix(c.Line, " capture") {
				t.Errorf("%+v", c)
			}
			got = append(got, c.Bytes)
		}
	}
	if len(want) < 3 || !slices.Equal(got, want) {
		t.Errorf("graphs of %d bytes, PyTorch's pool grew by %d", got, want)
	}
}
