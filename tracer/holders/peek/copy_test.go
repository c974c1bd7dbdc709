// SPDX-License-Identifier: Apache-2.0

package peek_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/holders/peek"

	"github.com/vramprof/vramprof/tracer/holders/pythontest"
)

// resident returns how much of a process's memory is resident, in pages.
func resident(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestCopyTouchesNothing(t *testing.T) {
	// A reservation that is not used, one of which a page is used, and a list that leads into nowhere.
	const job = `import mmap, os, sys
reserved = mmap.mmap(-1, 256 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
partly = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
partly[5 << 20] = 1
shared = mmap.mmap(-1, 64 << 20)
print("ready", flush=True)
sys.stdin.read()`
	cmd := exec.Command(pythontest.Program(t), "-c", job)
	p := pythontest.Start(t, cmd)
	before := resident(t, cmd.Process.Pid)
	c := peek.NewCopy(p, 1<<30)
	defer c.Close()
	if err := c.Take(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, r := range p.Regions() {
		for a := r.Start; a < r.End && r.End-r.Start <= 512<<20; a += 1 << 20 {
			c.U64(a)
		}
	}
	if after := resident(t, cmd.Process.Pid); after != before {
		t.Errorf("%d pages were resident before the copy, %d after it", before, after)
	}
	if !c.Whole() || c.Bytes() < 500*peek.PageSize {
		t.Errorf("%d bytes were copied", c.Bytes())
	}
}
