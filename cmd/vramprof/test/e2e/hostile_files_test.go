// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// mapsAnything maps all of its arguments as code, under the name of a CUDA library, and loads those
// that can be loaded; then it modifies the files according to their names.
const mapsAnything = `
import ctypes, mmap, os, sys
print("ready", os.getpid(), flush=True)
sys.stdin.readline()
kept = []
for path in sys.argv[2:]:
    fd = os.open(path, os.O_RDWR)
    kept.append(mmap.mmap(fd, 1 << 16, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC))
    if "truncated" in path:
        os.ftruncate(fd, 100)
    if "deleted" in path:
        os.unlink(path)
        with open(path, "w") as f: f.write("another")
    os.close(fd)
kept.append(ctypes.CDLL(sys.argv[1]))
print("mapped", flush=True)
sys.stdin.readline()
`

func TestHostileLibrariesDoNotAffectOthers(t *testing.T) {
	dir := setup(t)
	files := t.TempDir()
	at := func(names ...string) string {
		path := filepath.Join(append([]string{files}, names...)...)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const driver = "libcuda.so.1"
	mkfifo(t, at("fifo", driver))
	if err := os.Symlink(driver, at("loop", driver)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", at("zero", driver)); err != nil {
		t.Fatal(err)
	}
	sparse(t, at("sparse", driver), 100<<30)
	sparse(t, at("small", driver), 1<<16)
	for _, name := range []string{"truncated", "deleted"} {
		copyFile(t, dir.Lib(driver), at(name, driver))
	}
	text, err := os.ReadFile(dir.Lib(driver))
	if err != nil {
		t.Fatal(err)
	}
	for i := 64; i < len(text); i += 7 { // damaged headers
		text[i] = byte(i * i)
	}
	if err := os.WriteFile(at("damaged", driver), text, 0o755); err != nil {
		t.Fatal(err)
	}

	good := startWellBehaved(t, dir)
	env := dir.Env(t, 1, 8<<30)
	// vramprof looks in these folders for the driver's library of a process that has not loaded it
	// yet.
	search := strings.Join([]string{at("fifo"), at("loop"), at("zero"), at("sparse"), at("damaged")}, ":")
	p := startTarget(t, append(slices.Clone(env), "LD_LIBRARY_PATH="+search), "/usr/bin/python3", writeFile(t, "maps.py", mapsAnything), dir.Lib("libcudart.so.12"),
		at("sparse", driver), at("small", driver), at("truncated", driver), at("deleted", driver), at("damaged", driver))
	p.expectReady()
	l := startLeaks(t, env, "-p", fmt.Sprint(p.pid()), "-p", fmt.Sprint(good.pid())).ready()
	good.half()
	p.next()
	p.expect("mapped")
	eventually(t, 3*time.Minute, "vramprof opened the libraries", func() bool {
		return strings.Contains(l.stderr.String(), "of libcudart.so.12") && stateOf(p.pid()) == 'S'
	})
	l.afterASecond()
	good.done()
	r := l.stop().leaks()
	p.end()
	good.end()
	good.check(r)
	text2 := strings.Join(r.Warnings, "\n")
	if n := strings.Count(text2, "probe libcuda.so.1 of process "); n < 2 {
		t.Errorf("damaged and sparse libraries are not in the warnings:\n%s", text2)
	}
}

func TestHostilePerfMapsRevealNoFiles(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("jit_c writes x86-64 code")
	}
	dir := setup(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("0 ffffffffffffffff SECRET\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, replace := range map[string]func(path string){
		"FIFO":                func(path string) { mkfifo(t, path) },
		"sparse file":         func(path string) { sparse(t, path, 2<<30) },
		"link to /dev/zero":   func(path string) { _ = os.Symlink("/dev/zero", path) },
		"link to a secret":    func(path string) { _ = os.Symlink(secret, path) },
		"link to itself":      func(path string) { _ = os.Symlink(path, path) },
		"folder":              func(path string) { _ = os.Mkdir(path, 0o755) },
		"secret in its place": func(path string) { _ = os.WriteFile(path, []byte("0 ffffffffffffffff SECRET\n"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := dir.Env(t, 1, 8<<30)
			for _, v := range env {
				if shm, ok := strings.CutPrefix(v, "FAKECUDA_SHM="); ok {
					_ = os.Chmod(shm, 0o666)
				}
			}
			cmd := exec.Command(dir.Program("jit_c"))
			cmd.Env = env
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
			p := startCommand(t, cmd)
			p.expectReady()
			path := fmt.Sprintf("/tmp/perf-%d.map", p.pid())
			_ = os.Remove(path)
			replace(path)
			t.Cleanup(func() { os.Remove(path) })
			l := startLeaks(t, env, "-p", fmt.Sprint(p.pid())).ready()
			p.next()
			p.expect("done")
			r := l.stop().leaks()
			p.end()
			if r.LiveCount != 5 || r.LiveBytes != 5*4096 {
				t.Errorf("live %d bytes in %d, want %d in 5", r.LiveBytes, r.LiveCount, 5*4096)
			}
			if text := l.stdout.String() + l.stderr.String(); strings.Contains(text, "SECRET") {
				t.Errorf("a secret was read out:\n%s", text)
			}
		})
	}
}

// In its own mount namespace, a process can put anything where vramprof looks for debug files.
func TestHostileDebugFilesDoNotBlock(t *testing.T) {
	dir := setup(t)
	folder := t.TempDir()
	debug := filepath.Join(folder, "alloc_c.debug")
	program := filepath.Join(folder, "alloc_c")
	for _, args := range [][]string{
		{"--only-keep-debug", dir.Program("alloc_c"), debug},
		{"--strip-debug", "--add-gnu-debuglink=" + debug, dir.Program("alloc_c"), program},
	} {
		if out, err := exec.Command("objcopy", args...).CombinedOutput(); err != nil {
			t.Skipf("objcopy: %v %s", err, out)
		}
	}
	if err := os.Remove(debug); err != nil {
		t.Fatal(err)
	}
	mkfifo(t, debug)
	id, err := exec.Command("sh", "-c", `readelf -n "$0" | sed -n 's/.*Build ID: //p'`, program).Output()
	if err != nil {
		t.Skip(err)
	}
	build := strings.TrimSpace(string(id))
	setUp := `set -e; mount -t tmpfs none /usr/lib/debug; mkdir -p /usr/lib/debug/.build-id/` + build[:min(2, len(build))] + `
mkfifo /usr/lib/debug/.build-id/` + build[:min(2, len(build))] + `/` + build[min(2, len(build)):] + `.debug
mkdir -p "/usr/lib/debug$(dirname "$1")/.debug"; truncate -s 100G "/usr/lib/debug$1.debug" || true
exec "$@"`
	if _, err := os.Stat("/usr/lib/debug"); err != nil {
		t.Skip(err)
	}
	good := startWellBehaved(t, dir)
	env := dir.Env(t, 1, 8<<30)
	script := writeFile(t, "script", "ready\nwait\nrepeat 5\nmalloc a 1000\nend\nprint done\nwait\n")
	p := startTarget(t, env, "unshare", "--mount", "--propagation", "private", "sh", "-c", setUp, "sh", program, script)
	line := p.line()
	if line != fmt.Sprint("ready ", p.pid()) {
		t.Skipf("no mount namespace: %s", line)
	}
	l := startLeaks(t, env, "-p", fmt.Sprint(p.pid()), "-p", fmt.Sprint(good.pid())).ready()
	p.next()
	p.expect("done")
	good.half()
	good.done()
	r := l.stop().leaks()
	p.end()
	good.end()
	good.check(r)
	if r.LiveCount != 6 {
		t.Errorf("live %d, want 5 and 1", r.LiveCount)
	}
}
