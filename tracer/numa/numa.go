// SPDX-License-Identifier: Apache-2.0

// Package numa reports whether automatic NUMA balancing may hide pages of processes from BPF
// programs, and where the kernel has those pages.
package numa

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/bits"
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

const (
	maxSymbols = 64 << 20 // bytes of /proc/kallsyms; Linux 6.12 has 12 MB
	maxZones   = 64 << 20 // bytes of /proc/zoneinfo; about 100 for each zone and CPU
)

// findDirectMaps returns where the direct map of a kernel may be: one place on x86-64, several on
// arm64, of which prove accepts at most one. pageSize is in bytes.
func findDirectMaps(root fs.FS, arch string, pageSize int) ([]bpf.DirectMap, error) {
	var maps []bpf.DirectMap
	symbol := "page_offset_base"
	switch arch {
	case "amd64":
		m := bpf.DirectMap{Levels: 4}
		if hasFlag(root, "la57") {
			m.Levels = 5
		}
		m.Start = starts[m.Levels]
		maps = append(maps, m)
	case "arm64":
		symbol = "memstart_addr"
		maps = armMaps(pageSize)
	}
	if len(maps) == 0 {
		return nil, errors.New("find the kernel's direct map: known only for x86-64 and arm64")
	}
	f, err := root.Open("proc/kallsyms")
	if err != nil {
		return nil, fmt.Errorf("find the kernel's direct map: %w", err)
	}
	defer f.Close()
	address, err := findSymbol(f, symbol)
	if err == nil && address == 0 && arch == "arm64" { // x86-64 has it only if it randomizes the map
		err = fmt.Errorf("the kernel lists no %s (it needs CONFIG_KALLSYMS_ALL)", symbol)
	}
	if err != nil {
		return nil, fmt.Errorf("find the kernel's direct map: %w", err)
	}
	end, err := memoryEnd(root)
	if err != nil {
		return nil, err
	}
	for i := range maps {
		maps[i].Symbol, maps[i].End = address, end
	}
	return maps, nil
}

// memoryEnd returns the number of the page after all memory, from lines of /proc/zoneinfo such as
// "spanned 4095" and, later in the same zone, "start_pfn: 1".
func memoryEnd(root fs.FS) (end uint64, err error) {
	f, err := root.Open("proc/zoneinfo")
	if err != nil {
		return 0, fmt.Errorf("find the end of memory: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(io.LimitReader(f, maxZones))
	var spanned uint64
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) != 2 {
			continue
		}
		switch n, _ := strconv.ParseUint(fields[1], 10, 52); fields[0] {
		case "spanned":
			spanned = n
		case "start_pfn:":
			end, spanned = max(end, n+spanned), 0
		}
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("find the end of memory: %w", err)
	}
	return end, nil
}

// Bits of addresses that arm64 kernels use, by page size (arch/arm64/Kconfig).
var addressBits = map[int][]uint32{4 << 10: {48, 39, 52}, 16 << 10: {48, 47, 36, 52}, 64 << 10: {48, 42, 52}}

// Bits of a marked entry: PTE_PROT_NONE and PTE_NG before Linux 6.10, then PTE_PRESENT_INVALID.
var armMarks = []uint64{1<<58 | 1<<11, 1 << 11}

func armMaps(pageSize int) (maps []bpf.DirectMap) {
	page := uint32(bits.TrailingZeros(uint(pageSize)))
	for _, mark := range armMarks {
		for _, n := range addressBits[pageSize] {
			inTable := page - 3 // an entry has 8 bytes
			maps = append(maps, bpf.DirectMap{Levels: (n - page + inTable - 1) / inTable, Start: ^uint64(0) << n, PageBits: page, Mark: mark})
		}
	}
	return maps
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

var errHidden = errors.New("the kernel hides its addresses (add CAP_SYSLOG, and set kernel.kptr_restrict to at most 1)")

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
