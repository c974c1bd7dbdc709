// SPDX-License-Identifier: Apache-2.0

// Kernelmemory prints how much memory of the kernel vramprof takes on machines with so many possible CPUs, all online: a line
// with the number of CPUs and the MiB at least and at most for each argument.
package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/vramprof/vramprof/tracer"
)

func main() {
	for _, arg := range os.Args[1:] {
		cpus, err := strconv.ParseUint(arg, 10, 16)
		if err != nil || cpus == 0 {
			fmt.Fprintln(os.Stderr, "usage: kernelmemory CPUS…")
			os.Exit(2)
		}
		x, err := tracer.KernelMemoryFor(int(cpus), int(cpus))
		if err != nil {
			fmt.Fprintln(os.Stderr, "kernelmemory:", err)
			os.Exit(1)
		}
		fmt.Println(cpus, x.Least>>20, x.Most>>20)
	}
}
