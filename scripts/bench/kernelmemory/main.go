// SPDX-License-Identifier: Apache-2.0

// Kernelmemory prints how much kernel memory vramprof needs on machines with the given numbers of
// possible CPUs, all online. For each number it prints a line with the minimum, the minimum with
// PyTorch and the maximum in MiB.
package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/vramprof/vramprof/tracer/kernelmemory"
)

func main() {
	for _, arg := range os.Args[1:] {
		cpus, err := strconv.ParseUint(arg, 10, 16)
		if err != nil || cpus == 0 {
			fmt.Fprintln(os.Stderr, "usage: kernelmemory CPUS…")
			os.Exit(2)
		}
		x, err := kernelmemory.Compute(int(cpus), int(cpus))
		if err != nil {
			fmt.Fprintln(os.Stderr, "kernelmemory:", err)
			os.Exit(1)
		}
		fmt.Println(cpus, x.Least>>20, (x.Least+x.Torch)>>20, x.Most>>20)
	}
}
