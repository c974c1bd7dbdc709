// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package nvml

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// seen is what one child process got from a library: a process can load only one.
type seen struct {
	Open, GPUsError, UsageError string
	Version                     string
	GPUs                        []ledger.GPU
	Usage, Nameless             []ledger.Usage
	MPS                         []uint32
	Unavailable                 uint64
	Ordinals                    []string // of "MIG-GPU-0/3/0"
}

func TestMain(m *testing.M) {
	if os.Getenv("VRAMPROF_TEST_ORDER") != "" {
		if err := PrintOrder(os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if path := os.Getenv("VRAMPROF_TEST_NVML"); path != "" {
		if err := json.NewEncoder(os.Stdout).Encode(look(path)); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func look(path string) seen {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var s seen
	d, err := Open(ctx, path)
	if err != nil {
		s.Open = err.Error()
		return s
	}
	s.Version = d.Version()
	s.GPUs, err = d.GPUs(ctx)
	s.GPUsError = text(err)
	s.Usage, err = d.Usage(ctx)
	s.UsageError = text(err)
	s.Unavailable, s.Nameless, s.MPS = d.Unavailable(), d.Nameless(), d.MPS()
	s.Ordinals = d.ResolveOrdinals([]string{"CUDA_VISIBLE_DEVICES=MIG-GPU-0/3/0"}, s.GPUs)
	if err := d.Close(ctx); err != nil && s.UsageError == "" {
		s.UsageError = "close: " + err.Error()
	}
	return s
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func lookAt(t *testing.T, library string, environ ...string) seen {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), "VRAMPROF_TEST_NVML="+library), environ...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var s seen
	if err := json.Unmarshal(out, &s); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return s
}

func buildLibrary(t *testing.T, flags ...string) string {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc")
	}
	out := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	args := append([]string{"-shared", "-fPIC", "-o", out, filepath.Join("testdata", "nvml.c")}, flags...)
	if msg, err := exec.Command(gcc, args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, msg)
	}
	return out
}

func TestUsageJoinsTheListsOncePerPIDAndGPU(t *testing.T) {
	got := lookAt(t, buildLibrary(t))
	want := seen{
		Version: "550.1",
		GPUs: []ledger.GPU{
			{Index: 0, UUID: "GPU-0", Name: "Fake GPU", Total: 80 << 30, Used: 1 << 30},
			{Index: 1, UUID: "GPU-1", Name: "Fake GPU", Total: 80 << 30, Used: 1 << 30},
		},
		Usage: []ledger.Usage{
			{PID: 100, UUID: "GPU-0", Bytes: 300 << 20},
			{PID: 200, UUID: "GPU-0", Bytes: 1 << 40},
			{PID: 400, UUID: "GPU-0", Bytes: 30},
			{PID: 500, UUID: "GPU-0", Bytes: 7},
			{PID: 600, UUID: "GPU-0", Bytes: 5},
			{PID: 100, UUID: "GPU-1", Bytes: 1 << 20},
		},
		Unavailable: 1,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// A process in two lists counts once, also where neither names it.
func TestMemoryWithoutAPIDAndClientsOfMPSAreListed(t *testing.T) {
	got := lookAt(t, buildLibrary(t, "-DHIDDEN"))
	if want := []ledger.Usage{{UUID: "GPU-0", Bytes: 3}, {UUID: "GPU-1", Bytes: 7 << 20}}; !reflect.DeepEqual(got.Nameless, want) {
		t.Errorf("without a pid are %+v, want %+v", got.Nameless, want)
	}
	if want := []uint32{200, 400}; !reflect.DeepEqual(got.MPS, want) {
		t.Errorf("clients of MPS are %v, want %v", got.MPS, want)
	}
	if n := len(got.Usage); n != 6 {
		t.Errorf("%d entries with a pid, want 6: %+v", n, got.Usage)
	}
}

func TestOldLibraryWithoutOptionalSymbols(t *testing.T) {
	got := lookAt(t, buildLibrary(t, "-DOLD"))
	want := seen{
		GPUs:  []ledger.GPU{{Index: 0, UUID: "GPU-0"}, {Index: 1, UUID: "GPU-1"}},
		Usage: []ledger.Usage{{PID: 100, UUID: "GPU-0", Bytes: 1 << 20}, {PID: 100, UUID: "GPU-1", Bytes: 1 << 20}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestOneLostGPUDoesNotAffectOthers(t *testing.T) {
	got := lookAt(t, buildLibrary(t), "NVML_LOST=1")
	if len(got.GPUs) != 1 || len(got.Usage) != 5 {
		t.Errorf("got %+v", got)
	}
	for _, err := range []string{got.GPUsError, got.UsageError} {
		if want := "GPU 1: nvmlDeviceGetHandleByIndex: the GPU has fallen off the bus"; err != want {
			t.Errorf("got %q, want %q", err, want)
		}
	}
}

func TestInaccessibleGPUIsOmittedSilently(t *testing.T) {
	got := lookAt(t, buildLibrary(t), "NVML_DENIED=1")
	if len(got.GPUs) != 1 || len(got.Usage) != 5 || got.GPUsError+got.UsageError != "" {
		t.Errorf("got %+v", got)
	}
}

// instances lists the library's GPUs with NVML_MIG.
var instances = []ledger.GPU{
	{Index: 0, UUID: "GPU-0", Name: "Fake GPU", Total: 80 << 30, Used: 1 << 30},
	{Index: 0, UUID: "MIG-0", Name: "Fake GPU", Total: 20 << 30, Used: 1 << 30, Parent: "GPU-0"},
	{Index: 0, UUID: "MIG-2", Name: "Fake GPU", Total: 20 << 30, Used: 1 << 30, Parent: "GPU-0"},
	{Index: 1, UUID: "GPU-1", Name: "Fake GPU", Total: 80 << 30, Used: 1 << 30},
}

func TestMIGInstancesAreSeparateDevices(t *testing.T) {
	got := lookAt(t, buildLibrary(t), "NVML_MIG=1")
	want := seen{
		Version: "550.1",
		GPUs:    instances,
		Usage: []ledger.Usage{
			{PID: 100, UUID: "GPU-0", Bytes: 300 << 20},
			{PID: 200, UUID: "GPU-0", Bytes: 1 << 40},
			{PID: 400, UUID: "GPU-0", Bytes: 20}, // on an unlisted instance
			{PID: 400, UUID: "MIG-0", Bytes: 10},
			{PID: 500, UUID: "GPU-0", Bytes: 7},
			{PID: 600, UUID: "GPU-0", Bytes: 5},
			{PID: 100, UUID: "GPU-1", Bytes: 1 << 20},
		},
		Unavailable: 1,
		Ordinals:    []string{"MIG-2"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestInstancesReportUsageThatTheirGPUDenies(t *testing.T) {
	got := lookAt(t, buildLibrary(t), "NVML_MIG=1", "NVML_MIG_USER=1")
	want := []ledger.Usage{
		{PID: 400, UUID: "MIG-0", Bytes: 10}, {PID: 100, UUID: "GPU-1", Bytes: 1 << 20},
	}
	if !reflect.DeepEqual(got.GPUs, instances) || !reflect.DeepEqual(got.Usage, want) || got.GPUsError+got.UsageError != "" {
		t.Errorf("got %+v", got)
	}
	got = lookAt(t, buildLibrary(t), "NVML_MIG_USER=1")
	if want := "GPU 0 (GPU-0): nvmlDeviceGetComputeRunningProcesses: no permission"; got.UsageError != want {
		t.Errorf("a GPU that is not divided: got %q, want %q", got.UsageError, want)
	}
}

func TestDriversWithPartialMIGSupportHaveNoInstances(t *testing.T) {
	got := lookAt(t, buildLibrary(t, "-DNO_IDS"), "NVML_MIG=1")
	if len(got.GPUs) != 2 || len(got.Usage) != 6 || got.GPUsError+got.UsageError != "" {
		t.Errorf("got %+v", got)
	}
}

func TestUnusableLibrariesAreUnavailableWithTheReason(t *testing.T) {
	for _, c := range []struct {
		library, environ, want string
	}{
		{buildLibrary(t), "NVML_NO_DRIVER=1", "the NVIDIA driver is not loaded"},
		{buildLibrary(t, "-DNO_UUID"), "A=B", "lacks nvmlDeviceGetUUID"},
	} {
		got := lookAt(t, c.library, c.environ)
		if !strings.HasPrefix(got.Open, ErrUnavailable.Error()) || !strings.Contains(got.Open, c.want) {
			t.Errorf("got %q, want %q", got.Open, c.want)
		}
	}
}

func TestHangingDriverDoesNotBlockCallers(t *testing.T) {
	begin := time.Now()
	got := lookAt(t, buildLibrary(t), "NVML_HANG=1")
	if !strings.HasPrefix(got.UsageError, ErrBusy.Error()) || len(got.GPUs) != 2 {
		t.Errorf("got %+v", got)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestFakeCUDAHasGPUs(t *testing.T) {
	cuda := fakecuda.Build(t)
	got := lookAt(t, cuda.Lib("libnvidia-ml.so.1"), cuda.Env(t, 2, 8<<30)...)
	if len(got.GPUs) != 2 || got.GPUsError+got.UsageError+got.Open != "" {
		t.Errorf("got %+v", got)
	}
}

// TestUsageOfAProcessIsOnTheInstanceOfItsOrdinal checks that memory allocated on ordinal 0 appears
// in NVML on the device that ResolveOrdinals returns.
func TestUsageOfAProcessIsOnTheInstanceOfItsOrdinal(t *testing.T) {
	const size, context = 64 << 20, 300 << 20
	cuda := fakecuda.Build(t)
	env := append(cuda.Env(t, 2, 8<<30), "FAKECUDA_MIG=1")
	library := cuda.Lib("libnvidia-ml.so.1")
	first := lookAt(t, library, env...)
	if len(first.GPUs) != 6 || first.GPUs[4].Parent != first.GPUs[3].UUID || first.GPUs[4].Total != 8<<30 || first.GPUs[3].Total != 16<<30 {
		t.Fatalf("2 GPUs with 2 instances each: got %+v", first)
	}
	for i, visible := range []string{
		"A=b", "CUDA_VISIBLE_DEVICES=1", "CUDA_VISIBLE_DEVICES=" + first.GPUs[5].UUID, "CUDA_VISIBLE_DEVICES=" + first.GPUs[2].UUID[:8],
	} {
		cmd := exec.Command(cuda.Program("alloc_c"))
		cmd.Env = append(slices.Clone(env), visible)
		cmd.Stdin = strings.NewReader(fmt.Sprintf("malloc a %d\nready\nwait\n", size))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		got := lookAt(t, library, env...)
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		cmd.Wait()
		want := []int{1, 4, 5, 2}[i]
		ordinals := ResolveOrdinals([]string{visible}, got.GPUs)
		if len(ordinals) != 1 || ordinals[0] != got.GPUs[want].UUID {
			t.Errorf("%s: ordinals %q, want %q", visible, ordinals, got.GPUs[want].UUID)
		}
		usage := []ledger.Usage{{PID: uint32(cmd.Process.Pid), UUID: got.GPUs[want].UUID, Bytes: size + context}}
		if !reflect.DeepEqual(got.Usage, usage) {
			t.Errorf("%s: got usage %+v, want %+v", visible, got.Usage, usage)
		}
	}
}

// On superchips each GPU is a NUMA node; integrated GPUs share the host's memory.
func TestGPUsThatShareMemoryWithTheHost(t *testing.T) {
	cuda := fakecuda.Build(t)
	library, env := cuda.Lib("libnvidia-ml.so.1"), cuda.Env(t, 2, 8<<30)
	s := lookAt(t, library, append(env, "FAKECUDA_NODE=4", "FAKECUDA_ADDRESSING=ATS")...)
	for i, g := range s.GPUs {
		if !g.HasNode || g.Node != uint32(4+i) || g.Addressing != ledger.AddressingATS || g.Integrated || g.Total != 8<<30 {
			t.Errorf("superchip: got %+v", g)
		}
	}
	s = lookAt(t, library, append(env, "FAKECUDA_INTEGRATED=1", "FAKECUDA_NODE=0", "FAKECUDA_ADDRESSING=none")...)
	total, _ := hostMemory()
	for _, g := range s.GPUs {
		if !g.Integrated || g.HasNode || g.Total != total || g.Used == 0 || g.Used >= total || g.Addressing != ledger.AddressingNone {
			t.Errorf("integrated: got %+v, want %d bytes in all", g, total)
		}
	}
	if s.GPUsError != "" || len(s.GPUs) != 2 {
		t.Errorf("got %+v", s)
	}
	s = lookAt(t, library, append(env, "FAKECUDA_NODE=5000", "FAKECUDA_ADDRESSING=HMM")...)
	if g := s.GPUs[0]; g.HasNode || g.Addressing != ledger.AddressingHMM {
		t.Errorf("got %+v", g)
	}
}

func TestHostMemoryIsThatOfMeminfo(t *testing.T) {
	const text = "MemTotal:       127600748 kB\nMemFree:        100 kB\nMemAvailable:   118566368 kB\nHugePages_Total:       0\n"
	if total, used := parseMeminfo(strings.NewReader(text)); total != 127600748<<10 || used != (127600748-118566368)<<10 {
		t.Errorf("got %d, %d", total, used)
	}
	for _, text := range []string{"", "MemTotal: x kB", "MemTotal: 1 kB\nMemAvailable: 2 kB", "MemTotal: 18446744073709551615 kB"} {
		if total, used := parseMeminfo(strings.NewReader(text)); total > 1024 || used != 0 {
			t.Errorf("%q: got %d, %d", text, total, used)
		}
	}
}
