// SPDX-License-Identifier: Apache-2.0

// Package numa knows whether automatic NUMA balancing may hide pages of processes from BPF
// programs, and where the kernel has those pages all the same.
package numa

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/vramprof/vramprof/bpf"
)

// Nodes returns the NUMA nodes with memory if there are several: "0-1". Balancing is possible only
// then. root is the root file system.
func Nodes(root fs.FS) string {
	nodes := read(root, "sys/devices/system/node/has_memory") // since Linux 5.10
	if nodes == "" {
		nodes = read(root, "sys/devices/system/node/online")
	}
	if !strings.ContainsAny(nodes, "-,") {
		return ""
	}
	return nodes
}

// IsBalancing reports whether balancing is on, on a host with several Nodes.
func IsBalancing(root fs.FS) bool {
	mode := read(root, "proc/sys/kernel/numa_balancing")
	return mode != "" && mode != "0"
}

func read(root fs.FS, name string) string {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// Starts of the direct map without randomization (Documentation/arch/x86/x86_64/mm.rst), by levels.
var starts = map[uint32]uint64{4: 0xffff888000000000, 5: 0xff11000000000000}

const maxSymbols = 64 << 20 // bytes of /proc/kallsyms; Linux 6.12 has 12 MB

// FindDirectMap returns the direct map of an x86-64 kernel.
func FindDirectMap(root fs.FS, arch string) (bpf.DirectMap, error) {
	if arch != "amd64" {
		return bpf.DirectMap{}, errors.New("find the kernel's direct map: known only for x86-64")
	}
	m := bpf.DirectMap{Levels: 4}
	if hasFlag(root, "la57") {
		m.Levels = 5
	}
	m.Start = starts[m.Levels]
	f, err := root.Open("proc/kallsyms")
	if err != nil {
		return bpf.DirectMap{}, fmt.Errorf("find the kernel's direct map: %w", err)
	}
	defer f.Close()
	if m.Symbol, err = findSymbol(f, "page_offset_base"); err != nil {
		return bpf.DirectMap{}, fmt.Errorf("find the kernel's direct map: %w", err)
	}
	return m, nil
}

// hasFlag reports whether the kernel uses a feature of the first processor.
func hasFlag(root fs.FS, flag string) bool {
	f, err := root.Open("proc/cpuinfo")
	if err != nil {
		return false
	}
	defer f.Close()
	lines := bufio.NewScanner(io.LimitReader(f, 64<<10))
	for lines.Scan() {
		if name, flags, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(name) == "flags" {
			return strings.Contains(" "+flags+" ", " "+flag+" ")
		}
	}
	return false
}

var errHidden = errors.New("the kernel hides its addresses (add CAP_SYSLOG, or set kernel.kptr_restrict=0)")

// findSymbol returns the address of a symbol in lines such as "ffffffff82a0b6c8 D
// page_offset_base", and 0 if there is none.
func findSymbol(r io.Reader, symbol string) (uint64, error) {
	lines := bufio.NewScanner(io.LimitReader(r, maxSymbols))
	known := false
	for lines.Scan() {
		address, rest, _ := strings.Cut(lines.Text(), " ")
		known = known || strings.Trim(address, "0") != ""
		if _, name, _ := strings.Cut(rest, " "); name == symbol {
			value, err := strconv.ParseUint(address, 16, 64)
			if err != nil {
				return 0, fmt.Errorf("read the address of %s: %w", symbol, err)
			}
			if value == 0 {
				return 0, errHidden
			}
			return value, nil
		}
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("read the kernel's symbols: %w", err)
	}
	if !known {
		return 0, errHidden
	}
	return 0, nil
}
