// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestAGPUSaysWhatItUsedHalfOfTheTimeAgo(t *testing.T) {
	for _, readings := range []uint64{2, 5, 40, 1000} {
		l := New(Options{Begin: 1e9})
		for i := range readings {
			l.Tell(GPUs{{UUID: "GPU-a", Total: 1 << 40, Used: 1000 + i}})
			l.Tell(UsageReading{Time: 2e9 + i*1e9})
		}
		g := l.Snapshot(2e9+readings*1e9, time.Time{}).GPUs[0]
		if readings < 3 {
			if g.EarlierTime != 0 {
				t.Errorf("%d readings: %+v", readings, g)
			}
			continue
		}
		half := (readings - 1) / 2
		if i := g.EarlierUsed - 1000; g.Time != 2e9+(readings-1)*1e9 || g.EarlierTime != 2e9+i*1e9 || i > half+readings/10+1 || i+readings/10+1 < half {
			t.Errorf("%d readings: %+v", readings, g)
		}
	}
}

// TestAGPUUsesWhatItsProcessesDoAtEachMoment plays a machine whose GPU is read now and then:
// between two readings, what it uses follows its processes, which allocate, free, begin and end.
func TestAGPUUsesWhatItsProcessesDoAtEachMoment(t *testing.T) {
	const context, other = 300, 1000 // of each process once it was read; of processes that are not traced
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		l := New(Options{Begin: 1, unrounded: true})
		held := map[uint32]uint64{} // by running process, without its context
		read := map[uint32]bool{}   // NVML has listed it
		now, pids, address := uint64(1), uint32(10), uint64(0)
		live := map[uint32][]uint64{}
		for range 400 {
			now += 1 + rng.Uint64N(1e8)
			pid := 10 + uint32(rng.Uint64N(uint64(pids-9)))
			switch n := rng.Uint64N(10); {
			case n == 0:
				list, used := UsageReading{Time: now}, uint64(other)
				for p, bytes := range held {
					list.Usages = append(list.Usages, Usage{PID: p, UUID: "GPU-a", Bytes: bytes + context})
					used, read[p] = used+bytes+context, true
				}
				l.Tell(GPUs{{UUID: "GPU-a", Total: 1 << 40, Used: used}})
				l.Tell(list)
			case n == 1 && rng.Uint64N(3) == 0 && held[pid] > 0:
				l.Apply(&Event{Op: Exit, PID: pid, Time: now})
				delete(held, pid)
				delete(read, pid)
				delete(live, pid)
				pids++
			case n < 4 && len(live[pid]) > 0:
				l.Apply(&Event{Op: Free, PID: pid, Time: now, Address: live[pid][0]})
				live[pid], held[pid] = live[pid][1:], held[pid]-64
			default:
				if _, runs := held[pid]; !runs && pid != pids {
					continue // it has ended
				}
				address++
				l.Apply(&Event{Op: Alloc, Kind: Device, PID: pid, Time: now, Address: address, Size: 64, API: "cudaMalloc"})
				live[pid], held[pid] = append(live[pid], address), held[pid]+64
			}
			s := l.Snapshot(now, time.Time{})
			if len(s.GPUs) == 0 {
				continue
			}
			want := uint64(other)
			for p, bytes := range held {
				if want += bytes; read[p] {
					want += context
				}
			}
			if got := s.GPUs[0].Now(); got != want {
				t.Fatalf("seed %d, at %d: the GPU uses %d, its processes %d", seed, now, got, want)
			}
		}
	}
}
