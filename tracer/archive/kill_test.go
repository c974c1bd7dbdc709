// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// victim is the argument with which the test program writes into an archive until it is killed.
const victim = "write-until-killed"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == victim {
		writeUntilKilled(os.Args[2])
	}
	os.Exit(m.Run())
}

// writeUntilKilled keeps eleven allocations, and begins a new capture many times per second.
func writeUntilKilled(dir string) {
	l := ledger.New(ledger.Options{Begin: clock.Now()})
	w, err := NewWriter(dir, Options{
		Size: 1 << 20, FileSize: 4 << 10, Opening: func(to ledger.Books) { l.Opening(to) }, step: time.Millisecond, interval: 15 * time.Millisecond,
	})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	both := func(in ledger.Input) {
		w.Tell(in)
		l.Tell(in)
	}
	both(ledger.Begin{Time: clock.Now()})
	both(ledger.Process{PID: 42, Comm: "train", Begin: clock.Now()})
	fmt.Println("ready")
	live := []uint64{}
	for n := uint64(1); ; n++ {
		e := ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: 42, TID: 42, Time: clock.Now(), Address: n << 21, Size: rand.Uint64N(1 << 20), API: "cudaMalloc", Stack: n % 7}
		if len(live) < 11 {
			live = append(live, e.Address)
		} else {
			e = ledger.Event{Op: ledger.Free, PID: 42, TID: 42, Time: clock.Now(), Address: live[0], API: "cudaFree"}
			live = live[1:]
		}
		w.Apply(&e)
		l.Apply(&e)
		if n%50 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
}

// TestKillAtAnyMoment: the archive of a Writer that was killed opens, ends right before the kill
// and has consistent books, also when the kill comes between two captures. VRAMPROF_KILLS is how
// often.
func TestKillAtAnyMoment(t *testing.T) {
	kills, err := strconv.Atoi(os.Getenv("VRAMPROF_KILLS"))
	if err != nil {
		kills = 12
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, parts, most := t.TempDir(), uint32(0), time.Duration(0)
	for n := range kills {
		cmd := exec.Command(self, victim, dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
			t.Fatalf("kill %d: %q", n, line)
		}
		time.Sleep(rand.N(120 * time.Millisecond))
		killed := clock.Now()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		a, err := Open(dir)
		if err != nil || len(a.Problems()) > 0 || len(a.Captures()) == 0 {
			t.Fatalf("kill %d: %v, %q", n, err, a.Problems())
		}
		last := a.Captures()[len(a.Captures())-1]
		parts = max(parts, last.Part)
		most = max(most, time.Duration(killed-min(last.End, killed)))
		checkVictim(t, n, last)
	}
	t.Logf("%d kills, up to %d captures in a session; the archive lacks at most %v", kills, parts+1, most)
	if parts == 0 || most > time.Second {
		t.Errorf("up to part %d, at most %v", parts, most)
	}
}

func checkVictim(t *testing.T, n int, last *Capture) {
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
		if strings.HasPrefix(text, "the capture lacks inputs") {
			t.Logf("kill %d: %s", n, text) // the machine is busy: it is named, and the books lack it
			return
		}
	}
	var live uint64
	for i := range s.Sites {
		live += s.Sites[i].LiveObjects
	}
	if live > 11 || last.Part > 0 && live < 10 || s.Stats.UnmatchedFrees > 0 || len(s.Processes) > 1 {
		t.Errorf("kill %d: %s has %d live allocations, %d unmatched frees, %d processes", n, last.Name, live, s.Stats.UnmatchedFrees, len(s.Processes))
	}
	for _, text := range r.Warnings() {
		if !strings.HasPrefix(text, "the capture is incomplete") {
			t.Errorf("kill %d: %s: %s", n, last.Name, text)
		}
	}
}
