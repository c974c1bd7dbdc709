// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/archive"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// killsVariable is how often TestArchiveSurvivesKills kills serve: scripts/archive-kills.sh sets
// it.
const killsVariable = "VRAMPROF_KILLS"

// lostByKill is the most that a kill may cost: inputs are written every 0.75 s.
const lostByKill = time.Second

// TestArchiveSurvivesKills kills serve again and again while a program allocates. Each time, the
// archive must be readable up to the last second, and the next serve must find the program.
func TestArchiveSurvivesKills(t *testing.T) {
	kills, err := strconv.Atoi(os.Getenv(killsVariable))
	if err != nil {
		kills = 1
	}
	dir := setupAlone(t)
	env := dir.Env(t, 1, 8<<30)
	busy := startTarget(t, env, dir.Program("bench_c"), "cudart", "10", "1", "--seconds", "36000", "--rate", "20000", "--live", "1000", "--sites", "50")
	folder := t.TempDir()
	var lost []time.Duration
	captures := 0
	for n := range kills {
		x := startServe(t, env, "--archive", folder, "--archive-size", "1MiB") // a new capture every 64 KiB
		ready := clock.Now()
		time.Sleep(rand.N(1500 * time.Millisecond))
		killed := clock.Now()
		_ = x.cmd.Process.Signal(unix.SIGKILL)
		<-x.done
		a, err := archive.Open(folder)
		if err != nil || len(a.Problems()) > 0 {
			t.Fatalf("kill %d: %v, %q", n, err, a.Problems())
		}
		list := a.Captures()
		last := list[len(list)-1]
		captures = max(captures, len(list))
		lost = append(lost, time.Duration(killed-min(last.End, killed)))
		checkKilled(t, n, last, ready, uint32(busy.pid()))
	}
	slices.Sort(lost)
	t.Logf("%d kills: the archive lacks %v of the time before a kill at most, %v in the median; up to %d captures", kills, lost[len(lost)-1], lost[len(lost)/2], captures)
	if most := lost[len(lost)-1]; most > lostByKill*slowness {
		t.Errorf("the archive lacks %v before a kill", most)
	}
}

// checkKilled checks the last capture of a server that was killed: what came up to its end is in
// it.
func checkKilled(t *testing.T, n int, last *archive.Capture, ready uint64, pid uint32) {
	t.Helper()
	r, err := capture.Open(last.Path)
	if err != nil {
		t.Fatalf("kill %d: %v", n, err)
	}
	defer r.Close()
	s, err := r.Snapshot(last.End)
	if err != nil {
		t.Fatalf("kill %d: %v", n, err)
	}
	for _, text := range r.Warnings() {
		if !strings.HasPrefix(text, "the capture is incomplete (still being written, its disk was full, or vramprof was killed)") {
			t.Errorf("kill %d: %s: %s", n, last.Name, text)
		}
	}
	if last.End < ready {
		return // it did not trace for long enough
	}
	i := slices.IndexFunc(s.Processes, func(p ledger.Process) bool { return p.PID == pid })
	if i < 0 || s.Processes[i].End != 0 || s.Stats.Events == 0 {
		t.Errorf("kill %d: %s has %d events, and not the program that runs", n, last.Name, s.Stats.Events)
	}
	if x, err := last.Index(); err != nil || len(x.Processes) == 0 {
		t.Errorf("kill %d: index of %s: %+v, %v", n, last.Name, x, err)
	}
}
