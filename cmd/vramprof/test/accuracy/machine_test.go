// SPDX-License-Identifier: Apache-2.0

package accuracy

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// account is what a process holds by device (-1: the host) and kind.
type account map[[2]int]fakecuda.Count

func accountOf(p *fakecuda.Process) account {
	a := account{{-1, int(ledger.Pinned)}: p.Pinned, {-1, int(ledger.Registered)}: p.Registered}
	pinned := a[[2]int{-1, int(ledger.Pinned)}]
	a[[2]int{-1, int(ledger.Pinned)}] = fakecuda.Count{Objects: pinned.Objects + p.VMMHost.Objects, Bytes: pinned.Bytes + p.VMMHost.Bytes}
	for i, g := range p.GPUs {
		for kind, c := range map[ledger.Kind]fakecuda.Count{
			ledger.Device: g.Device, ledger.Managed: g.Managed, ledger.Async: g.Async, ledger.VMM: g.VMM, ledger.Array: g.Array, ledger.Imported: g.Imported, ledger.Graph: g.Graph,
		} {
			a[[2]int{i, int(kind)}] = c
		}
	}
	return a
}

// bookedOf returns what the books contain for the only process.
func bookedOf(s *ledger.Snapshot) account {
	a := account{}
	for _, p := range s.Processes {
		for _, x := range p.Totals {
			key := [2]int{int(x.Device), int(x.Kind)}
			if x.Kind.OnHost() {
				key[0] = -1
			}
			a[key] = fakecuda.Count{Objects: a[key].Objects + x.LiveObjects, Bytes: a[key].Bytes + x.LiveBytes}
		}
	}
	return a
}

func monotonic() uint64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return uint64(ts.Nano())
}

// TestBooksOfRandomCallsEqualTheMachines: eight threads make random calls of all kinds on four
// GPUs. Whenever they stop, the test compares the books with what the simulated driver has
// allocated.
func TestBooksOfRandomCallsEqualTheMachines(t *testing.T) {
	needRoot(t)
	fake := fakecuda.Build(t)
	const stops, threads = 8, 8
	var bytes, wrong, calls uint64
	for seed := range longer(1, 5) {
		env := fake.Env(t, 4, 64<<30)
		each := longer(8_000, 200_000) / (threads * stops) * (threads * stops)
		s := record(t, env, "--", fake.Program("calls_c"), "--random", fmt.Sprint(seed+1), fmt.Sprint(each/threads), "--threads", fmt.Sprint(threads),
			"--gpus", "4", "--stops", fmt.Sprint(stops), "--wait")
		calls += uint64(each)
		s.until("random stop 0\n")
		var times []uint64
		var accounts []account
		for stop := 1; stop <= stops; stop++ {
			fmt.Fprintln(s.input)
			if stop < stops {
				s.until(fmt.Sprintf("random stop %d\n", stop))
			} else {
				s.until(fmt.Sprintf("random %d ", seed+1))
			}
			processes, err := fakecuda.ReadUsage(env)
			if err != nil || len(processes) != 1 {
				t.Fatalf("%d processes, %v", len(processes), err)
			}
			if stop == stops { // the end of its input does not end the program
				t.Cleanup(func() { _ = unix.Kill(int(processes[0].PID), unix.SIGKILL) })
			}
			times, accounts = append(times, monotonic()), append(accounts, accountOf(&processes[0]))
		}
		played := s.stop().played()
		books := played.rec.NewLedger()
		playMoments(t, played.rec, books, times, func(i int) {
			got, want := bookedOf(books.Snapshot(times[i], time.Time{})), accounts[i]
			for key, c := range got {
				if _, known := want[key]; !known && c.Objects > 0 {
					t.Errorf("stop %d: device %d, kind %d: %+v, missing on the machine", i+1, key[0], key[1], c)
					wrong += c.Bytes
				}
			}
			for key, c := range want {
				bytes += c.Bytes
				if got[key] != c {
					wrong += max(got[key].Bytes, c.Bytes) - min(got[key].Bytes, c.Bytes)
					t.Errorf("stop %d: device %d, kind %d: the books have %+v, the machine %+v", i+1, key[0], key[1], got[key], c)
				}
			}
		})
		if n := played.snapshot.Stats.Lost; n > 0 {
			t.Errorf("%d events lost", n)
		}
	}
	results.add(t, "bytes of random calls of all kinds", fmt.Sprintf("%s calls, %s bytes", thousands(calls), thousands(bytes)), fmt.Sprintf("%s wrong", thousands(wrong)))
}
