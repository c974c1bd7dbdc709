// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestAKilledServerLeavesItsPlaceAtOnce kills serve while it has probes, which the kernel takes
// seconds to remove: the next one must not wait for that.
func TestAKilledServerLeavesItsPlaceAtOnce(t *testing.T) {
	dir := setup(t)
	p := startTarget(t, dir.Env(t, 1, 1<<30), dir.Program("alloc_c"), writeFile(t, "script", "ready\nwait\n"))
	p.expectReady()
	x := startServe(t, dir.Env(t, 1, 1<<30), "--holders", "off")
	x.waitFor(`"msg":"tracing"`)
	lock, err := os.Open(filepath.Join(x.archive, ".lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		t.Fatal("the archive is not locked")
	}
	begin := time.Now()
	if err := x.cmd.Process.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Second*slowness, "its port and its archive are free", func() bool {
		socket, err := net.Listen("tcp", x.address)
		if err != nil {
			return false
		}
		socket.Close()
		return unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
	})
	free := time.Since(begin)
	<-x.done
	t.Logf("free after %v, ended after %v", free, time.Since(begin))
}
