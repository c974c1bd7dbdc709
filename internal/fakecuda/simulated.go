// SPDX-License-Identifier: Apache-2.0

package fakecuda

import (
	"cmp"
	"fmt"
	"os"
	"testing"

	"github.com/vramprof/vramprof/internal/simdriver"
)

// Simulated reports whether VRAMPROF_CUDA=sim has tests run the programs on NVIDIA's own libcuda,
// libcudart and libnvidia-ml over a simulated kernel driver instead of the fake CUDA.
func Simulated() bool { return os.Getenv("VRAMPROF_CUDA") == "sim" }

// OnlyFake skips a test that cannot run on NVIDIA's libraries, and prints the reason.
func OnlyFake(t testing.TB, why string) {
	t.Helper()
	if Simulated() {
		t.Skip("needs the fake CUDA: " + why)
	}
}

// branch is the branch of the driver.
func branch() string { return cmp.Or(os.Getenv("VRAMPROF_DRIVER"), "535") }

// simulatedFolder returns the folder of NVIDIA's libraries, or "" if they are not unpacked.
func simulatedFolder() string {
	folder, _ := simdriver.Folder(branch())
	return folder
}

// simulatedEnv is Env on a simulated kernel driver of the branch $VRAMPROF_DRIVER, by default 535.
func simulatedEnv(t testing.TB, gpus int, memory uint64) []string {
	t.Helper()
	const most, reserved = 8, 1 << 10 // GPUs, and MiB of each that the model keeps
	if gpus > most {
		OnlyFake(t, fmt.Sprintf("the simulated driver has at most %d GPUs", most))
	}
	env := simdriver.Build(t, branch()).Env(t, "t4", gpus)
	return append(env, "PYTHONDONTWRITEBYTECODE=1", fmt.Sprintf("SIMDRIVER_MEMORY_MIB=%d", memory>>20+reserved))
}
