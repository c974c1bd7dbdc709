// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// loops forks, executes, and loads copies of the driver's library as fast as possible.
const loops = `
import _ctypes, ctypes, os, shutil, sys
libraries, folder = sys.argv[1], sys.argv[2]
shutil.copy(libraries + "/libcuda.so.1", folder + "/libcuda.so.1")
ctypes.CDLL(folder + "/libcuda.so.1")
print("ready", os.getpid(), flush=True)
sys.stdin.readline()
pid = os.fork()
if pid == 0:
    os.close(0)
    os.close(1)
    while os.getppid() != 1:
        child = os.fork()
        if child == 0:
            os.execv("/bin/true", ["true"])
        os.waitpid(child, 0)
    os._exit(0)
n = 0
print("looping", flush=True)
while n < 150:
    path = "%s/libcuda-%d.so" % (folder, n)
    shutil.copy(libraries + "/libcuda.so.1", path)
    handle = ctypes.CDLL(path)
    os.unlink(path)
    _ctypes.dlclose(handle._handle)
    n += 1
print("looped", flush=True)
sys.stdin.readline()
os.kill(pid, 9)
os.waitpid(pid, 0)
`

func TestLoopOfForksAndLibrariesDoesNotAffectOthers(t *testing.T) {
	dir := setup(t)
	good := startWellBehaved(t, dir)
	env := dir.Env(t, 1, 8<<30)
	p := startTarget(t, env, "/usr/bin/python3", writeFile(t, "loops.py", loops), string(dir), t.TempDir())
	p.expectReady()
	l := startLeaks(t, env, "-p", fmt.Sprint(p.pid()), "-p", fmt.Sprint(good.pid())).ready()
	p.next()
	p.expect("looping")
	good.half()
	p.expect("looped")
	good.done()
	begin := time.Now()
	r := l.stop().leaks() // fails after 90 s
	t.Logf("ended within %v", time.Since(begin))
	p.end()
	good.end()
	good.check(r)
	checkWhole(t, r)
	for _, w := range r.Warnings {
		if strings.Contains(w, "panic") {
			t.Error(w)
		}
	}
}
