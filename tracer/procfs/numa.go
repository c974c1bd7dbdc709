// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	numaPatience = 2 * time.Second // for one process: the kernel walks its page tables
	maxNumaMaps  = 16 << 20        // bytes of text
	maxNumaLine  = 16 << 10        // with a path of at most 4096 bytes, escaped
	maxNodeBytes = 1 << 50
)

// NodeMemory returns how many bytes of a process's anonymous memory are on each NUMA node: what
// malloc and mmap gave it, and its stacks. Mapped files, shared memory and the mappings of devices
// (those of CUDA, too) are left out. cut means that the list was too long, so the figures are lower
// bounds. It takes at most 2 s; see Call.
func NodeMemory(pid uint32) (on map[uint32]uint64, cut bool, err error) {
	type answer struct {
		on  map[uint32]uint64
		cut bool
	}
	a, err := Call(pid, numaPatience, func() (a answer, err error) {
		f, err := os.Open(fmt.Sprintf("/proc/%d/numa_maps", Thread(pid)))
		if err != nil {
			return a, err
		}
		defer f.Close()
		a.on, a.cut, err = parseNumaMaps(f, maxNumaMaps)
		return a, err
	})
	return a.on, a.cut, err
}

// parseNumaMaps reads at most limit bytes of lines such as
// "7f5c00000000 default anon=512 dirty=512 N0=256 N1=256 kernelpagesize_kB=64".
func parseNumaMaps(r io.Reader, limit int64) (on map[uint32]uint64, cut bool, err error) {
	on = map[uint32]uint64{}
	bounded := &io.LimitedReader{R: r, N: limit}
	lines := bufio.NewScanner(bounded)
	lines.Buffer(make([]byte, 0, 4096), maxNumaLine)
	for lines.Scan() {
		addNumaLine(on, lines.Text())
	}
	return on, bounded.N == 0, lines.Err()
}

func addNumaLine(on map[uint32]uint64, line string) {
	var page uint64
	var nodes [][2]uint64
	for _, field := range strings.Fields(line) {
		name, value, _ := strings.Cut(field, "=")
		n, err := strconv.ParseUint(value, 10, 48)
		switch {
		case name == "file":
			return
		case err != nil:
		case name == "kernelpagesize_kB":
			page = n << 10
		case strings.HasPrefix(name, "N"):
			if node, err := strconv.ParseUint(name[1:], 10, 16); err == nil {
				nodes = append(nodes, [2]uint64{node, n})
			}
		}
	}
	for _, at := range nodes {
		if page > 0 && at[1] <= (maxNodeBytes-min(on[uint32(at[0])], maxNodeBytes))/page {
			on[uint32(at[0])] += at[1] * page
		}
	}
}
