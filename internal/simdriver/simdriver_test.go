// SPDX-License-Identifier: Apache-2.0

package simdriver

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const checks = "testdata/simdriver/program/checks.c"

func run(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestNVIDIAsLibcudaWorksOnEachDriverAndModel(t *testing.T) {
	t.Parallel()
	program := Program(t, checks)
	for _, driver := range Drivers {
		for _, model := range Models {
			t.Run(driver+"/"+model, func(t *testing.T) {
				t.Parallel()
				dir := Build(t, driver)
				one, two := dir.Env(t, model, 1), dir.Env(t, model, 2)
				for _, check := range []string{"copies", "export"} {
					run(t, one, program, check)
				}
				if name := driver + model; name != "550t4" && name != "535h100" {
					return
				}
				for _, check := range []string{"managed", "pools", "vmm", "oom"} {
					run(t, one, program, check)
				}
				run(t, two, program, "gpus", "2")
				run(t, two, program, "peers")
			})
		}
	}
}

// Up to 1 MiB, allocations share chunks of 2 MiB; above, each has memory of its own in whole pages
// of 2 MiB.
func TestDriverTakesWholeLargePages(t *testing.T) {
	t.Parallel()
	program := Program(t, checks)
	for _, driver := range Drivers {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			got := run(t, Build(t, driver).Env(t, "t4", 1), program, "sizes")
			want := "1 2097152\n65537 2097152\n1048576 2097152\n1048577 2097152\n2097153 4194304\n3145729 4194304\n104857601 106954752\n"
			if got != want {
				t.Errorf("bytes asked for and taken:\n%swant\n%s", got, want)
			}
		})
	}
}

// Small allocations lie first-fit at 512 bytes in shared pages, which go with the last of them.
// Pools take chunks of 32 MiB that begin at multiples of that; a chunk without allocations goes at
// the next synchronization.
func TestPoolsTakeChunksOf32MiB(t *testing.T) {
	t.Parallel()
	program := Program(t, checks)
	for _, driver := range Drivers {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			dir := Build(t, driver)
			want := `small 2
small 2
small 2
small 4
free 4
free 4
free 2
free 0
at 0: queued 32
at 1: queued 32
at 6837: queued 32
at 27317: queued 64
at 47797: queued 96
free 96
synchronized 64
free 64
synchronized 32
free 32
synchronized 32
free 32
synchronized 32
free 32
synchronized 0
`
			for _, model := range []string{"t4", "h100"} {
				if got := run(t, dir.Env(t, model, 1), program, "rounding"); got != want {
					t.Errorf("%s: held:\n%swant\n%s", model, got, want)
				}
			}
		})
	}
}

// As root, libcuda makes missing device files.
func TestNoDeviceFileIsLeft(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make device files")
	}
	present := func() string { found, _ := filepath.Glob("/dev/nvidia*"); return fmt.Sprint(found) }
	before := present()
	t.Cleanup(func() { os.Remove("/dev/nvidia-simdriver-check") })
	env, program := Build(t, "535").Env(t, "t4", 1), Program(t, checks)
	run(t, env, program, "copies")
	run(t, env, program, "node")
	if after := present(); after != before {
		t.Errorf("device files %s, before %s", after, before)
	}
}

// startDriver starts driver.c, and gives it commands, which must succeed. It returns the process,
// which ends with the test, and what it prints.
func startDriver(t *testing.T, env []string, program string, commands ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(program)
	cmd.Env = env
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	lines := bufio.NewScanner(out)
	for _, command := range commands {
		fmt.Fprintln(in, command)
		if !lines.Scan() || !strings.Contains(lines.Text(), `"result": 0`) {
			t.Fatalf("%s: the driver program answers %q", command, lines.Text())
		}
	}
	return cmd, lines
}

func TestMemoryOfAKilledProcessIsFree(t *testing.T) {
	t.Parallel()
	dir := Build(t, "535")
	env := dir.Env(t, "t4", 1)
	program := Program(t, "scripts/gpucheck/program/driver.c")
	alone := run(t, env, Program(t, checks), "free")
	cmd, lines := startDriver(t, env, program, "init", fmt.Sprint("alloc ", 1<<30))
	beside := run(t, env, Program(t, checks), "free")
	held := Held(t, env, cmd.Process.Pid, 0)
	cmd.Process.Kill()
	// Until it is waited for, the process is a zombie, which holds nothing.
	lines.Scan() // its end of the pipe is closed
	after := run(t, env, Program(t, checks), "free")
	cmd.Wait()
	var a, b uint64
	fmt.Sscan(alone, &a)
	fmt.Sscan(beside, &b)
	if a-b != held || held <= 1<<30 {
		t.Errorf("another process sees %d bytes less, the process holds %d", a-b, held)
	}
	if after != alone {
		t.Errorf("free after the kill: %s, want %s", after, alone)
	}
}

// The sizes stand in docs/planes.md.
func TestContextsTakeWhatIsDocumented(t *testing.T) {
	t.Parallel()
	program := Program(t, "scripts/gpucheck/program/driver.c")
	for _, driver := range Drivers {
		for model, mib := range map[string]uint64{"t4": 100, "a100": 414, "h100": 516} {
			t.Run(driver+"/"+model, func(t *testing.T) {
				t.Parallel()
				env := Build(t, driver).Env(t, model, 1)
				cmd, _ := startDriver(t, env, program, "init")
				if held := Held(t, env, cmd.Process.Pid, 0); held != mib<<20 {
					t.Errorf("a context holds %d bytes, want %d MiB", held, mib)
				}
			})
		}
	}
}

// On an H200 with 580.159 NVML's figure of a process is the sum of its objects in the GPU's memory,
// byte for byte (docs/planes.md). It must be so here.
func TestNVMLsFigureIsTheSumOfObjects(t *testing.T) {
	t.Parallel()
	record := filepath.Join(t.TempDir(), "record.so")
	program := filepath.Join(repository(), "testdata/simdriver/program")
	if out, err := exec.Command("gcc", "-O2", "-shared", "-fPIC", "-o", record, filepath.Join(program, "record.c"), "-ldl").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	for _, driver := range Drivers {
		for _, model := range Models {
			t.Run(driver+"/"+model, func(t *testing.T) {
				t.Parallel()
				dir := Build(t, driver)
				env := append(dir.Env(t, model, 1), "RECORD="+filepath.Join(t.TempDir(), "record"), "PYTHONDONTWRITEBYTECODE=1",
					"LD_PRELOAD="+record+":"+filepath.Join(string(dir), "libsimdriver.so"))
				if out := run(t, env, "python3", filepath.Join(program, "objects.py")); strings.Count(out, "NVML") < 13 {
					t.Errorf("objects.py prints only:\n%s", out)
				}
			})
		}
	}
}

func TestUnknownRequestsAreReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "unknown")
	if err := os.WriteFile(path, []byte("control 0x7fff NOT_IN_THE_LIST\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := newlyUnknown(t, path); len(got) != 1 {
		t.Errorf("newly unknown: %q, want the line", got)
	}
}

// A tracer in the kernel must see each ioctl, which a descriptor refuses there.
func TestKernelSeesTheDriversIoctls(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip(err)
	}
	trace := filepath.Join(t.TempDir(), "trace")
	args := []string{"-f", "-e", "trace=ioctl", "-o", trace}
	for _, v := range Build(t, "535").Env(t, "t4", 1) {
		args = append(args, "-E", v)
	}
	if out, err := exec.Command("strace", append(args, Program(t, checks), "free")...).CombinedOutput(); err != nil {
		t.Skipf("strace: %v\n%s", err, out)
	}
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	// NV_ESC_RM_CONTROL
	if n := strings.Count(string(text), "0x46, 0x2a, 0x20)"); n < 100 {
		t.Errorf("the kernel saw %d controls, want at least 100", n)
	}
}
