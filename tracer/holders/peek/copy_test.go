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
	// A reservation that is not used, one of which a page is used, and a list that leads into
	// nowhere.
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
	// Many pages at once are as they are one by one, and no more than the limit.
	few := peek.NewCopy(p, 1<<20)
	defer few.Close()
	var all []uint64
	for _, r := range p.Regions() {
		for a := r.Start; r.Own() && a < r.End && r.End-r.Start <= 512<<20; a += peek.PageSize / 2 {
			all = append(all, a)
		}
	}
	few.Fetch(all)
	same := 0
	for _, a := range all {
		if few.Bytes() == 1<<20 && few.Has(a) {
			if *few.Page(a) != *c.Page(a) {
				t.Errorf("page %#x differs", a)
			}
			same++
		}
	}
	if few.Bytes() != 1<<20 || same != 2*(1<<20)/peek.PageSize {
		t.Errorf("%d bytes were fetched, %d addresses in them", few.Bytes(), same)
	}
	if after := resident(t, cmd.Process.Pid); after != before {
		t.Errorf("%d pages were resident before the copy, %d after it", before, after)
	}
	if !c.Whole() || c.Bytes() < 500*peek.PageSize {
		t.Errorf("%d bytes were copied", c.Bytes())
	}
}

// TestRenewPutsLaterPagesInPlace: what was read again replaces what was copied, and what was not
// stays.
func TestRenewPutsLaterPagesInPlace(t *testing.T) {
	const job = `import ctypes, mmap, sys
m = mmap.mmap(-1, 8192, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
m[0], m[4096] = 1, 1
print("at", ctypes.addressof(ctypes.c_char.from_buffer(m)), flush=True)
sys.stdin.readline()
m[0], m[4096] = 2, 2
print("ready", flush=True)
sys.stdin.read()`
	cmd := exec.Command(pythontest.Program(t), "-c", job)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	var at uint64
	var word string
	if _, err := fmt.Fscan(out, &word, &at); err != nil {
		t.Fatal(err)
	}
	p, err := peek.Open(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	c := peek.NewCopy(p, 1<<30)
	defer c.Close()
	if err := c.Take(context.Background()); err != nil || c.U8(at) != 1 {
		t.Fatal(err, c.U8(at))
	}
	fmt.Fprintln(in)
	if _, err := fmt.Fscan(out, &word); err != nil {
		t.Fatal(err)
	}
	later := peek.NewCopy(p, 1<<20)
	if later.U8(at) != 2 {
		t.Fatal("the later copy is not later")
	}
	c.Renew(later)
	later.Close()
	if c.U8(at) != 2 || c.U8(at+peek.PageSize) != 1 {
		t.Errorf("%d in the page that was read again, %d in the other one; want 2 and 1", c.U8(at), c.U8(at+peek.PageSize))
	}
}
