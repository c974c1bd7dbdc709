// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/internal/realtorch"
	"github.com/vramprof/vramprof/internal/simdriver"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// On NVIDIA's libcuda and libnvidia-ml, over a simulated kernel driver.
func TestBooksOnNVIDIAsDriverAreExact(t *testing.T) {
	onEachDriver(t, checkBooksOnNVIDIAsDriver)
}

// onEachDriver checks something on NVIDIA's libraries of each version, at the same time.
func onEachDriver(t *testing.T, check func(t *testing.T, driver string)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("tracing needs root")
	}
	binary(t)
	t.Parallel()
	for _, driver := range simdriver.Drivers {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			check(t, driver)
		})
	}
}

func checkBooksOnNVIDIAsDriver(t *testing.T, driver string) {
	dir := simdriver.Build(t, driver)
	env := dir.Env(t, "t4", 2)
	target := startTarget(t, env, simdriver.Program(t, "scripts/gpucheck/program/driver.c"))
	do := func(command string) {
		t.Helper()
		fmt.Fprintln(target.stdin, command)
		if answer := target.line(); !strings.HasPrefix(answer, `{"result": 0`) {
			t.Fatalf("%s: %s", command, answer)
		}
	}
	do("init")
	before := simdriver.Held(t, env, target.pid(), 0)
	s := startLeaks(t, env, "-p", fmt.Sprint(target.pid())).ready()
	for _, command := range []string{"alloc 67108864 1", "alloc 1000 300", "managed 5000000", "pinned 3000000", "async 7000000", "create 4194304", "map", "release", "free 100"} {
		do(command)
	}
	s.after(2500 * time.Millisecond) // a reading of the driver
	r := s.stop().leaks()
	held := simdriver.Held(t, env, target.pid(), 0)
	do("pairs 1") // it runs on undisturbed

	checkNoLosses(t, r)
	got := map[string]uint64{}
	for _, x := range r.Sites {
		if x.LiveBytes > 0 {
			got[x.API+" "+x.Device] += x.LiveBytes
		}
	}
	want := map[string]uint64{
		"cuMemAlloc_v2 cuda:0": 67108864 + 200*1000, "cuMemAllocManaged cuda:0": 5000000, "cuMemHostAlloc host": 3000000,
		"cuMemAllocAsync cuda:0": 7000000, "cuMemCreate cuda:0": 4194304,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("live: %v, want %v", got, want)
	}
	var parts, sum uint64
	for _, p := range r.Parts {
		parts++
		sum += p.UsageBytes
	}
	if parts != 1 || sum != held || held <= before {
		t.Errorf("%d parts with %d bytes, want 1 with the %d bytes that the kernel's book has (%d before)", parts, sum, held, before)
	}
}

// From the first call of CUDA to the last, at each moment, all memory has a plane: the driver's
// rounding is known to the byte, and a context counts as such while it is built, also on a second
// GPU.
func TestSimulatedDriverExplainsAllBytes(t *testing.T) {
	onEachDriver(t, func(t *testing.T, driver string) { checkNothingIsUnexplained(t, driver) })
}

// With --driver-objects, all of that has the call that took it: also the context.
func TestSimulatedDriverNamesTheCallOfEachByte(t *testing.T) {
	onEachDriver(t, func(t *testing.T, driver string) { checkNothingIsUnexplained(t, driver, "--driver-objects") })
}

// eachMoment replays a capture in steps of 20 ms.
func eachMoment(t *testing.T, rec *capture.Reader) iter.Seq2[uint64, *ledger.Snapshot] {
	return func(yield func(uint64, *ledger.Snapshot) bool) {
		books, player := rec.NewLedger(), rec.Player()
		for at := rec.Begin(); at < rec.End(); at += 20_000_000 {
			if err := player.PlayTo(at, books); err != nil {
				t.Fatal(err)
			}
			if !yield(at, rec.SnapshotOf(books, at)) {
				return
			}
		}
	}
}

func checkNothingIsUnexplained(t *testing.T, driver string, flags ...string) {
	dir := simdriver.Build(t, driver)
	env, path := dir.Env(t, "t4", 2), filepath.Join(t.TempDir(), "run.vram")
	loaded := append(slices.Clone(env), fmt.Sprintf("LD_PRELOAD=%s/libsimdriver.so %s/libcuda.so.1", dir, dir)) // so that it can be probed at once
	target := startTarget(t, loaded, simdriver.Program(t, "scripts/gpucheck/program/driver.c"))
	do := func(commands ...string) {
		t.Helper()
		for _, command := range commands {
			fmt.Fprintln(target.stdin, command)
			if answer := target.line(); !strings.HasPrefix(answer, `{"result": 0`) {
				t.Fatalf("%s: %s", command, answer)
			}
		}
	}
	s := start(t, env, append([]string{"record", "-o", path, "-p", fmt.Sprint(target.pid())}, flags...)...).ready()
	var held [][2]uint64
	look := func() {
		t.Helper()
		s.after(1500 * time.Millisecond) // a reading of the driver
		held = append(held, [2]uint64{simdriver.Held(t, env, target.pid(), 0), simdriver.Held(t, env, target.pid(), 1)})
	}
	do("init", "alloc 1000 300", "alloc 3145729 5", "alloc 1048576 3")
	look()
	do("async 7000000", "free 2", "gpu 1", "alloc 600000 7", "alloc 2000000 2")
	look()
	do("freeasync", "free 4", "create 4194304", "map", "release", "pinned 3000000", "managed 5000000")
	look()
	s.stop()

	rec := openCapture(t, path)
	const context = 100 << 20 // of libcuda on a T4: see docs/accuracy.md
	moments, unplaced, seen := 0, 0, map[string]uint64{}
	for at, snapshot := range eachMoment(t, rec) {
		for i, x := range snapshot.Parts() {
			moments++
			seen[x.UUID] = x.Foreign // as of the end
			if len(flags) > 0 {
				seen[x.UUID] = x.Internal
			}
			// A reading of the driver while the process allocates is off by its doubt. While the
			// context is built, it takes less.
			doubt := snapshot.Balances[i].Doubt
			if x.Unplaced > 0 && x.Beyond() > 0 { // until NVML lists the process on the second GPU, soon after the first allocation there
				unplaced++
				continue
			}
			if x.Unexplained+x.Beyond() != 0 || x.Foreign > context+doubt || len(flags) > 0 && x.Foreign != 0 {
				t.Errorf("after %dms, with a doubt of %d bytes: %s", (at-rec.Begin())/1e6, doubt, report.PartText(snapshot, &x))
			}
		}
	}
	for uuid, bytes := range seen {
		if bytes != context {
			t.Errorf("the context on %s takes %d bytes", uuid, bytes)
			for _, x := range replay(t, rec).Parts() {
				t.Log(report.PartText(replay(t, rec), &x))
			}
		}
	}
	var last [2]uint64
	for i, x := range replay(t, rec).Parts() {
		last[i] = report.PartUsage(&x)
	}
	if unplaced > 20 {
		t.Errorf("for %d ms, memory is on no known GPU", 20*unplaced)
	}
	if moments < 100 || len(seen) != 2 || last != held[len(held)-1] {
		t.Errorf("%d moments of %d GPUs end with %d, want %d", moments, len(seen), last, held)
	}
}

// What PyTorch, cuBLAS and NCCL make the driver take is under the lines that called them, and
// nothing is unexplained.
func TestDriverObjectsExplainLibraries(t *testing.T) {
	setup(t)
	if !fakecuda.OnNVIDIA() {
		t.Skip("needs NVIDIA's cuBLAS and NCCL: scripts/sim-check.sh --tests")
	}
	root := realtorch.Prepare(t)
	env, path := root.Env(t, 1, momentsMemory), filepath.Join(t.TempDir(), "run.vram")
	job := root.Command(env, "libraries.py")
	s := start(t, job.Env, append([]string{"record", "--driver-objects", "--sample", "0", "-o", path, "--"}, job.Args...)...)
	s.wait()

	rec := openCapture(t, path)
	moments, most := 0, map[string]uint64{}
	for at, snapshot := range eachMoment(t, rec) {
		for i, x := range snapshot.Parts() {
			moments++
			doubt := snapshot.Balances[i].Doubt
			if x.Unexplained > doubt || x.Beyond() > doubt || x.Foreign > doubt {
				t.Errorf("after %d ms, with a doubt of %d bytes: %s", (at-rec.Begin())/1e6, doubt, report.PartText(snapshot, &x))
			}
		}
		for i := range snapshot.Sites {
			if x := &snapshot.Sites[i]; x.Kind == ledger.Internal {
				for _, f := range rec.Stack(x.Stack) {
					most[f.Function] = max(most[f.Function], x.LiveBytes)
				}
			}
		}
	}
	if moments < 50 || most["<module>"] == 0 || most["communicate"] == 0 { // the first tensor, and the first call of NCCL
		t.Errorf("%d moments; the driver took at one site below %v", moments, most)
	}
}
