// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// mappings maps parts of one sparse 4 GiB library as code, as often as vramprof examines mappings
// of a CUDA process. No part begins at a multiple of its size, so each takes dozens of entries in
// the kernel's tree.
const mappings = `
import ctypes, mmap, os, struct, sys
libraries, sparse, name = sys.argv[1], sys.argv[2], sys.argv[3]
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(15, name.encode())
ctypes.CDLL(libraries + "/libcuda.so.1")
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
fd = os.open(sparse, os.O_RDONLY)
at, n = 0x100000000000 + 0x1000, 0
while n < 8180:
    if libc.mmap(at, (4 << 30) - 0x3000, 5, 2 | 0x100000, fd, 0) == at:
        n += 1
    at += (4 << 30) - 0x1000
print("ready", os.getpid(), flush=True)
sys.stdin.readline()
`

// sparseLibrary writes a copy of a library whose first segment is 4 GiB of code.
func sparseLibrary(t *testing.T, from string) string {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	const headers, entry, kind, flags, offset, fileSize, memorySize = 64, 56, 0, 4, 8, 32, 40
	put := func(at int, value uint64) {
		for i := range 8 {
			data[at+i] = byte(value >> (8 * i))
		}
	}
	at := headers
	for ; data[at+kind] != 1; at += entry { // PT_LOAD
	}
	data[at+flags] = 5
	put(at+fileSize, 4<<30)
	put(at+memorySize, 4<<30)
	folder, err := os.MkdirTemp("", "vramprof-sparse") // other users must be able to read it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	path := filepath.Join(folder, "libsparse.so")
	if err := errors.Join(os.Chmod(folder, 0o755), os.WriteFile(path, data, 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 5<<30); err != nil {
		t.Skip(err)
	}
	return path
}

// TestFloodOfMappingsCostsOthersNoStacks runs five processes of an unprivileged user, and one that
// starts after them.
func TestFloodOfMappingsCostsOthersNoStacks(t *testing.T) {
	const flooders = 5
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	sparse := sparseLibrary(t, dir.Lib("libcuda.so.1"))
	name := fmt.Sprintf("maps%x", time.Now().UnixNano()&0xffffffff)
	flood := make([]*target, flooders)
	for i := range flood {
		cmd := exec.Command("/usr/bin/python3", "-c", mappings, string(dir), sparse, name)
		cmd.Env = env
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		flood[i] = startCommand(t, cmd)
	}
	for _, p := range flood {
		p.expectReady()
	}
	l := startLeaks(t, env, "--name", "^"+name+"g?$").ready()
	program := filepath.Join(t.TempDir(), name+"g") // no other test's program has this name
	if err := os.Symlink(dir.Program("alloc_c"), program); err != nil {
		t.Fatal(err)
	}
	good := startTarget(t, env, program, writeFile(t, "script", "ready\nwait\nrepeat 300\nmalloc a 1000\nend\nprint done\nwait\n"))
	good.expectReady()
	l.untilUnwound(good.pid())
	l.afterASecond() // when its libraries are probed
	good.next()
	good.expect("done")
	r := l.stop().leaks()
	for _, p := range flood {
		p.end()
	}
	good.end()
	checkWhole(t, r)
	var live uint64
	for _, x := range r.Sites {
		if int(x.PID) == good.pid() {
			live += x.LiveCount
		}
	}
	if live != 300 {
		t.Errorf("%d allocations of the process that started last are live, want 300; %s", live, told(r))
	}
	warnings := strings.Join(r.Warnings, "\n")
	for _, p := range flood {
		if !strings.Contains(warnings, fmt.Sprintf("stacks of process %d are truncated: its mappings need more than the 65536 entries that one process may have", p.pid())) {
			t.Errorf("no warning about process %d:\n%s", p.pid(), warnings)
		}
	}
}
