// SPDX-License-Identifier: Apache-2.0

// Package fakecuda provides tests with a CUDA driver, a CUDA runtime, an NVML and programs that use
// them, on machines without a GPU. The sources are in testdata/fakecuda, testdata/faketorch and
// testdata/programs; gcc and g++ build them once into the repository's .cache/fakecuda.
//
// Each FAKECUDA_SHM file is one simulated machine: all processes with the same file share its GPUs.
package fakecuda

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Dir is a folder with the built libraries and programs. All tests share it: do not write to it.
type Dir string

// Build returns the folder. It builds the folder if the sources or the compiler have changed, and
// skips the test if there is no gcc or g++. The environment variable FAKECUDA_DIR names a folder
// that is already built.
func Build(t testing.TB) Dir {
	t.Helper()
	if dir := os.Getenv("FAKECUDA_DIR"); dir != "" {
		return Dir(dir)
	}
	for _, tool := range []string{"bash", "gcc", "g++"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed, needed to build the fake CUDA", tool)
		}
	}
	dir, err := buildOnce()
	if err != nil {
		t.Fatalf("build the fake CUDA: %v", err)
	}
	return dir
}

var buildOnce = sync.OnceValues(build)

func build() (Dir, error) {
	_, self, _, ok := runtime.Caller(0)
	root := filepath.Dir(filepath.Dir(filepath.Dir(self)))
	if !ok || !filepath.IsAbs(self) {
		return "", fmt.Errorf("no source path in the test binary (build without -trimpath)")
	}
	hash, err := hashSources(root)
	if err != nil {
		return "", err
	}
	cache := filepath.Join(root, ".cache", "fakecuda")
	dir := filepath.Join(cache, hash)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(cache, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if _, err := os.Stat(filepath.Join(dir, "stamp")); err == nil {
		return Dir(dir), nil
	}
	return Dir(dir), compile(root, cache, dir)
}

// compile builds in a temporary folder and renames it to dir, so dir is complete or absent.
func compile(root, cache, dir string) error {
	temp, err := os.MkdirTemp(cache, "build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	if err := os.Chmod(temp, 0o755); err != nil { // tests run targets as other users
		return err
	}
	out, err := exec.Command(filepath.Join(root, "testdata", "fakecuda", "build.sh"), temp).CombinedOutput()
	if err != nil {
		return fmt.Errorf("build.sh: %w\n%s", err, out)
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Rename(temp, dir)
}

// hashSources returns the name of the cache folder: 16 hex digits that depend on the sources and
// the compiler.
func hashSources(root string) (string, error) {
	h := sha256.New()
	version, err := exec.Command("gcc", "-v").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("gcc -v: %w", err)
	}
	h.Write(version)
	for _, folder := range []string{"fakecuda", "faketorch", "programs"} {
		err := filepath.WalkDir(filepath.Join(root, "testdata", folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || strings.HasPrefix(d.Name(), "__pycache__") || !d.Type().IsRegular() {
				return err
			}
			text, err := os.ReadFile(path)
			fmt.Fprintf(h, "%s %d\n%s", d.Name(), len(text), text)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8]), nil
}

// Lib returns the path of a library: "libcuda.so.1", "libcudart.so.12", "libnvidia-ml.so.1",
// "libcudart_static.a", "wheel/libcudart-80664282.so.10.2".
func (d Dir) Lib(name string) string { return filepath.Join(string(d), name) }

// Driver returns the path of a library as Lib does, of NVIDIA's if OnNVIDIA.
func (d Dir) Driver(name string) string {
	if OnNVIDIA() {
		return filepath.Join(simulatedFolder(), name)
	}
	return d.Lib(name)
}

// Program returns the path of a program: "alloc_c", "alloc_cpp", "alloc_static" (stripped),
// "alloc_static_sym", "calls_c", "calls_static" (stripped), "bench_c", "paths_c", "dying_c",
// "register_c", "borders_c", "marked_c", "flood_c", "jit_c" (x86-64 only), "bench.py", "train.py",
// "leak.py", "paths.py", "tensors_c" (see Torch).
func (d Dir) Program(name string) string { return filepath.Join(string(d), name) }

// TorchVersions lists PyTorch versions, one for each way in which PyTorch reports tensors. 2.99
// reports them as no existing version does, and "none" does not report them.
var TorchVersions = []string{"1.6", "1.13", "2.6", "2.14", "2.99", "none"}

// Torch returns the environment variable that makes tensors_c use the libc10.so and libc10_cuda.so
// of a version.
func (d Dir) Torch(version string) string {
	return "LD_LIBRARY_PATH=" + d.Lib("torch-"+version) + ":" + d.Driver("") + ":" + string(d) // which has libforeign.so
}

// Env returns the environment of a new simulated machine for every process of the test. The machine
// has gpus GPUs (at most 16) with memory bytes each, and is removed when the test ends. Append
// "FAKECUDA_…=…" to change it: the last value of a variable wins.
func (d Dir) Env(t testing.TB, gpus int, memory uint64) []string {
	t.Helper()
	if OnNVIDIA() {
		return simulatedEnv(t, gpus, memory)
	}
	shm, err := os.CreateTemp("/dev/shm", "fakecuda-test-")
	if err != nil {
		if shm, err = os.CreateTemp(t.TempDir(), "fakecuda-test-"); err != nil {
			t.Fatal(err)
		}
	}
	shm.Close()
	t.Cleanup(func() { os.Remove(shm.Name()) })
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "FAKECUDA_") && !strings.HasPrefix(v, "CUDA_VISIBLE_DEVICES=") &&
			!strings.HasPrefix(v, "LD_LIBRARY_PATH=") && !strings.HasPrefix(v, "CUDART=") {
			env = append(env, v)
		}
	}
	return append(env,
		"LD_LIBRARY_PATH="+string(d),
		"PYTHONDONTWRITEBYTECODE=1", // the folder is shared
		shmVariable+"="+shm.Name(),
		fmt.Sprintf("FAKECUDA_GPUS=%d", gpus),
		fmt.Sprintf("FAKECUDA_MEMORY=%d", memory),
	)
}
