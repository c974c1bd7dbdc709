// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/vramprof/vramprof/tracer/nvml"
)

// orderCommand is a hidden first argument: vramprof runs itself with it to start CUDA and print
// CUDA's order of the GPUs.
const orderCommand = "print-cuda-order"

// RunHidden prints CUDA's order of the GPUs and exits if args ask for it.
func RunHidden(args []string) {
	if len(args) != 2 || args[1] != orderCommand {
		return
	}
	if err := nvml.PrintOrder(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "vramprof:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// learnOrder asks CUDA for its order of the GPUs where it may differ from NVML's. It starts CUDA,
// so it runs before anything is probed.
func (s *Session) learnOrder(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	gpus, err := s.driver.GPUs(ctx)
	if err != nil && len(gpus) == 0 {
		return
	}
	self, err := os.Executable()
	if err == nil {
		err = s.driver.LearnOrder(ctx, gpus, self, orderCommand)
	}
	if err != nil {
		s.warnings = append(s.warnings, fmt.Sprintf("GPUs of different models: %v (device numbers may stay without a GPU, except in processes with CUDA_DEVICE_ORDER=PCI_BUS_ID)", err))
	}
}
