// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// region is one range of a process's address space, from /proc/PID/smaps.
type region struct {
	start, end, offset uint64
	rights, name       string
	anonymous          int // KiB of memory without a file
}

func regions(t *testing.T, pid int) (list []region) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var r region
		if n, _ := fmt.Sscanf(line, "%x-%x %s %x", &r.start, &r.end, &r.rights, &r.offset); n == 4 {
			if words := strings.Fields(line); len(words) > 5 {
				r.name = words[5]
			}
			list = append(list, r)
			continue
		}
		last := &list[len(list)-1]
		fmt.Sscanf(line, "Anonymous: %d kB", &last.anonymous)
	}
	return list
}

func named(list []region, name string) (found []region) {
	for _, r := range list {
		if filepath.Base(r.name) == name {
			found = append(found, r)
		}
	}
	return found
}

// code returns, for a library's machine code in a process, the size of the process's own copy and
// the number of bytes that differ from the file.
func code(t *testing.T, pid int, library string) (own, different int) {
	t.Helper()
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	for _, r := range named(regions(t, pid), filepath.Base(library)) {
		if !strings.Contains(r.rights, "x") {
			continue
		}
		own += r.anonymous
		now, file := make([]byte, r.end-r.start), make([]byte, r.end-r.start)
		if _, err := memory.ReadAt(now, int64(r.start)); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(r.name)
		if err != nil {
			t.Fatal(err)
		}
		n, _ := f.ReadAt(file, int64(r.offset)) // the last page extends beyond the file's end
		f.Close()
		for i := range n {
			if now[i] != file[i] {
				different++
			}
		}
	}
	return own, different
}

func TestDetachLeavesOnlyTheKernelsMapping(t *testing.T) {
	dir := setupAlone(t) // another test's tracer of all processes would probe these too
	private := privateLibraries(t, dir)
	library := filepath.Join(private, "libcuda.so.1")
	script := writeFile(t, "script", "malloc a 4096\nready\nwait\nmalloc b 4096\nfree b\nprint called\nwait\nmalloc c 4096\nprint again\nexec "+
		writeFile(t, "second", "print executed\nwait\n")+"\n")
	env := append(dir.Env(t, 1, 8<<30), "LD_LIBRARY_PATH="+private)
	called, idle := startTarget(t, env, dir.Program("alloc_c"), script), startTarget(t, env, dir.Program("alloc_c"), script)
	called.expectReady()
	idle.expectReady()
	before := regions(t, called.pid())
	if own, different := code(t, called.pid(), library); own != 0 || different != 0 {
		t.Fatalf("before the attach %d KiB of code are the process's own, %d bytes differ from the file", own, different)
	}

	session := startRecord(t, env, "-p", fmt.Sprint(called.pid()), "-p", fmt.Sprint(idle.pid())).ready()
	if _, different := code(t, called.pid(), library); different == 0 || len(named(regions(t, called.pid()), "[uprobes]")) != 0 {
		t.Errorf("while probed %d bytes of code differ from the file, and there is %+v; want breakpoints and no [uprobes] before the first call", different, named(regions(t, called.pid()), "[uprobes]"))
	}
	called.next()
	called.expect("called")
	own, different := code(t, called.pid(), library)
	area := named(regions(t, called.pid()), "[uprobes]")
	if own == 0 || different == 0 || len(area) != 1 || area[0].rights != "--xp" || area[0].end-area[0].start != uint64(os.Getpagesize()) {
		t.Errorf("after a call %d KiB of code are the process's own, %d bytes differ from the file, and there is %+v; want breakpoints and a page of [uprobes]", own, different, area)
	}
	t.Logf("probed: %d KiB of code are the process's own, %d bytes differ from the file", own, different)
	ownOfIdle, _ := code(t, idle.pid(), library)
	copied := map[*target]int{called: own, idle: ownOfIdle}
	session.stop()

	for p, areas := range map[*target]int{called: 1, idle: 0} {
		eventually(t, 3*time.Minute, "the code equals the file again", func() bool {
			_, different := code(t, p.pid(), library)
			return different == 0
		})
		// The kernel may keep copies that it made, see SECURITY.md: they equal the file.
		if own, _ := code(t, p.pid(), library); own > copied[p] {
			t.Errorf("after the end %d KiB of the code of process %d are its own, %d KiB were while probed", own, p.pid(), copied[p])
		} else if own > 0 {
			t.Logf("after the end the kernel keeps %d KiB of private code that equals the file", own)
		}
		if area := named(regions(t, p.pid()), "[uprobes]"); len(area) != areas {
			t.Errorf("after the end there is %+v in process %d, want %d of it", area, p.pid(), areas)
		}
	}
	for _, r := range regions(t, called.pid()) {
		was := func(b region) bool {
			return b.start == r.start && b.end == r.end && b.rights == r.rights && b.name == r.name
		}
		if r.name != "[uprobes]" && !slices.ContainsFunc(before, was) {
			t.Errorf("after the end there is %+v, which was not there before the attach", r)
		}
	}
	called.next() // continues and executes
	called.expect("again")
	called.expect("executed")
	if area := named(regions(t, called.pid()), "[uprobes]"); len(area) != 0 {
		t.Errorf("after an exec there is still %+v", area)
	}
	called.end()
}
