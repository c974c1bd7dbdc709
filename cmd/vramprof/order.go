// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/vramprof/vramprof/tracer/nvml"
)

// orderCommand is the hidden first argument of our own program that starts CUDA to print its order of the GPUs.
const orderCommand = "print-cuda-order"

// runOrder prints the order if that is why this program runs, and then does not return.
func runOrder(args []string) {
	if len(args) != 2 || args[1] != orderCommand {
		return
	}
	if err := nvml.PrintOrder(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "vramprof:", err)
		os.Exit(exitError)
	}
	os.Exit(0)
}

// learnOrder asks CUDA for its order of the GPUs where it is not NVML's: before anything is probed, as it starts CUDA.
func (s *session) learnOrder(ctx context.Context) {
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
		s.warnings = append(s.warnings, fmt.Sprintf("GPUs of different models: %v (without it, device numbers may not be resolved to GPUs, except in processes with CUDA_DEVICE_ORDER=PCI_BUS_ID)", err))
	}
}
