// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// long skips a test that is too long for the suite: scripts/test-serve.sh sets VRAMPROF_SERVE.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("VRAMPROF_SERVE") == "" {
		t.Skip("run by scripts/test-serve.sh")
	}
}

// TestServeGoesOnWhenMemoryIsScarce: the targets that end record early only cost serve detail.
func TestServeGoesOnWhenMemoryIsScarce(t *testing.T) {
	long(t)
	dir := setupAlone(t)
	env := dir.Env(t, 1, 64<<30)
	const ceiling = 160 << 20
	x := startServe(t, env, "--max-memory", "160MiB", "--archive-size", "64MiB")
	targets, _ := startFloods(t, dir, env)
	for _, p := range targets {
		p.next()
	}
	x.waitFor("memory is scarce: dropped detail")
	highest := 0
	for range 100 {
		resident, _ := x.vitals()
		highest = max(highest, resident)
		time.Sleep(100 * time.Millisecond)
	}
	if highest > ceiling+80<<20 { // its files and rings
		t.Errorf("vramprof took %d MiB, with --max-memory %d MiB", highest>>20, ceiling>>20)
	}
	t.Logf("at most %d MiB", highest>>20)
	for _, p := range targets {
		p.expect("done")
		p.next()
	}
	if metrics := x.get("/metrics"); !bytes.Contains(metrics, []byte("vramprof_detail_dropped_total")) {
		t.Error("the metrics do not have what was dropped")
	}
	if err := x.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	x.wait()
}
