// SPDX-License-Identifier: Apache-2.0

package fakecuda

import (
	"cmp"
	"fmt"
	"os"
	"testing"

	"github.com/vramprof/vramprof/internal/simdriver"
)

// OnNVIDIA reports whether tests run the programs on NVIDIA's own libcuda, libcudart and
// libnvidia-ml instead of the fake CUDA: with VRAMPROF_CUDA=sim over a simulated kernel driver, or
// OnGPU.
func OnNVIDIA() bool { return os.Getenv("VRAMPROF_CUDA") == "sim" || OnGPU() }

// OnGPU reports whether VRAMPROF_CUDA=gpu has tests use this machine's own driver and GPU. The
// folder $VRAMPROF_LIBRARIES has libcuda.so.1, libcudart.so.12 and libnvidia-ml.so.1.
func OnGPU() bool { return os.Getenv("VRAMPROF_CUDA") == "gpu" }

// OnlyFake skips a test that cannot run on NVIDIA's libraries, and prints the reason.
func OnlyFake(t testing.TB, why string) {
	t.Helper()
	if OnNVIDIA() {
		t.Skip("needs the fake CUDA: " + why)
	}
}

// branch is the branch of the driver.
func branch() string { return cmp.Or(os.Getenv("VRAMPROF_DRIVER"), "535") }

// simulatedFolder returns the folder of NVIDIA's libraries, or "" if they are not unpacked.
func simulatedFolder() string {
	if OnGPU() {
		return os.Getenv("VRAMPROF_LIBRARIES")
	}
	folder, _ := simdriver.Folder(branch())
	return folder
}

// Math returns the folder of NVIDIA's libraries with cuBLAS and NCCL. It skips the test if they are
// not unpacked.
func Math(t testing.TB) string {
	t.Helper()
	return string(simdriver.Build(t, "--math", branch()))
}

// simulatedEnv is Env on a simulated kernel driver of the branch $VRAMPROF_DRIVER, by default 535.
func simulatedEnv(t testing.TB, gpus int, memory uint64) []string {
	t.Helper()
	if OnGPU() {
		if gpus > 1 {
			t.Skipf("needs %d GPUs", gpus)
		}
		return append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "LD_LIBRARY_PATH="+simulatedFolder())
	}
	const most, reserved = 8, 1 << 10 // GPUs, and MiB of each that the model keeps
	if gpus > most {
		OnlyFake(t, fmt.Sprintf("the simulated driver has at most %d GPUs", most))
	}
	env := simdriver.Build(t, branch()).Env(t, "t4", gpus)
	return append(env, "PYTHONDONTWRITEBYTECODE=1", fmt.Sprintf("SIMDRIVER_MEMORY_MIB=%d", memory>>20+reserved))
}
