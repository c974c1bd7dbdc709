// SPDX-License-Identifier: Apache-2.0

// Peers measures vramprof and other tools on the same programs in one run. The tools take turns,
// round by round, so that load on the machine affects all of them. scripts/bench.sh starts it and
// passes all paths. Package benchtable makes tables from its output:
//
//	calls vramprof c_cuda ns_per_pair 2128.0     table, tool, program, figure, value
//	missing heaptrack not installed: heaptrack   a tool that did not take part, and why
//
// It needs root and asserts nothing.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func main() {
	b := &bench{absent: make(map[string]bool)}
	flag.StringVar(&b.fake, "fake", "", "`folder` of the fake CUDA and the programs")
	flag.StringVar(&b.floor, "floor", "", "the program with empty probes")
	flag.StringVar(&b.vramprof, "vramprof", "", "the program")
	flag.StringVar(&b.python, "python", "python3", "interpreter of bench.py")
	flag.StringVar(&b.train, "train", "", "train.py of the real PyTorch")
	flag.StringVar(&b.torchRoot, "torch", "", "`folder` of the real PyTorch")
	flag.StringVar(&b.torchCuda, "torch-cuda", "", "`folder` of its CUDA libraries")
	flag.StringVar(&b.work, "work", os.TempDir(), "`folder` for files")
	flag.IntVar(&b.rounds, "rounds", 5, "rounds of each")
	flag.IntVar(&b.pairs, "pairs", 20000, "call pairs of a program")
	flag.Float64Var(&b.seconds, "seconds", 2, "of a program at a given rate")
	flag.Float64Var(&b.torchSeconds, "torch-seconds", 2.5, "of a training, with each length of a step")
	headers := flag.String("headers", "", "`folder` of kernel headers for bcc, if the kernel's own are missing")
	tables := flag.String("tables", "calls,books,torch,heap", "what to measure")
	output := flag.String("o", "/dev/stdout", "append figures to `file`")
	flag.Parse()
	if *headers != "" {
		b.memleakEnv = []string{"BCC_KERNEL_SOURCE=" + *headers}
	}
	if err := b.run(strings.Split(*tables, ","), *output); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func (b *bench) run(tables []string, output string) error {
	file, err := os.OpenFile(output, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	b.out = bufio.NewWriter(file)
	defer b.out.Flush()
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-interrupts
		b.killAll()
		os.Exit(130)
	}()
	defer b.killAll()
	b.findPeers()
	for _, t := range []struct {
		name    string
		measure func() error
	}{{"calls", b.measureCalls}, {"books", b.measureBooks}, {"torch", b.measureTorch}, {"heap", b.measureHeap}} {
		if slices.Contains(tables, t.name) {
			if err := t.measure(); err != nil {
				return fmt.Errorf("measure %s: %w", t.name, err)
			}
		}
	}
	return nil
}

// findPeers finds which tools cannot take part.
func (b *bench) findPeers() {
	for _, peer := range []struct{ tool, program, version, packages string }{
		{"bpftrace", "bpftrace", "--version", "Debian: bpftrace"},
		{"memleak", "memleak-bpfcc", "", "Debian: bpfcc-tools"},
		{"heaptrack", "heaptrack", "--version", "Debian: heaptrack"},
	} {
		if _, err := exec.LookPath(peer.program); err != nil {
			b.miss(peer.tool, "not installed: "+peer.program+" ("+peer.packages+")")
		}
	}
	if exec.Command(b.python, "-c", "import memray").Run() != nil {
		b.miss("memray", "not installed: memray (not a package of Debian 12; install it from PyPI)")
	}
	b.torchC10 = ""
	if b.torchRoot == "" {
		return
	}
	found, _ := filepath.Glob(filepath.Join(b.torchRoot, "usr/lib/*/libc10.so.2.6"))
	if len(found) == 1 {
		b.torchC10 = found[0]
	}
}
