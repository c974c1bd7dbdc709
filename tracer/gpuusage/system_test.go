// SPDX-License-Identifier: Apache-2.0

package gpuusage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vramprof/vramprof/tracer/deadline"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// superchip is a machine whose second GPU is NUMA node 1.
func superchip() *machine {
	m := newMachine()
	m.gpus = slices.Clone(eightGPUs())
	m.gpus[1].HasNode, m.gpus[1].Node, m.gpus[1].Addressing = true, 1, ledger.AddressingATS
	return m
}

func TestMemoryOnAGPUsNodeIsReadAndItsEndIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := superchip()
		reads, bytes := map[uint32]int{}, uint64(5)
		m.NodeMemory = func(pid uint32) (map[uint32]uint64, bool, error) {
			reads[pid]++
			switch pid {
			case 8: // takes long: it is read at most 1 in 100 of the time
				time.Sleep(100 * time.Millisecond)
			case 9:
				return nil, false, deadline.ErrStuck
			case 10:
				return nil, false, errors.New("it has ended")
			case 11:
				return map[uint32]uint64{0: 1 << 30}, false, nil
			}
			return map[uint32]uint64{0: 7, 1: bytes}, pid == 8, nil
		}
		for pid := uint32(7); pid <= 11; pid++ {
			m.introduce(pid, View{})
		}
		ctx, cancel := context.WithTimeout(t.Context(), 9400*time.Millisecond)
		defer cancel()
		time.AfterFunc(4500*time.Millisecond, func() { bytes = 0 })
		got := m.after(func() { m.RunSystem(ctx) })
		uuid := eightGPUs()[1].UUID
		if want := fmt.Sprintf("system 7 [{%s 5}] false", uuid); strings.Count(got, want) != 5 {
			t.Errorf("told %q, want %q five times", got, want)
		}
		if want := fmt.Sprintf("system 8 [{%s 5}] true", uuid); strings.Count(got, want) != 1 || strings.Count(got, "system 7 [] false") != 1 || strings.Contains(got, "11") {
			t.Errorf("told %q", got)
		}
		if reads[7] != 10 || reads[8] != 1 || reads[9] != 1 || reads[11] != 10 {
			t.Errorf("read %v", reads)
		}
	})
}

func TestNothingIsReadWithoutAGPUThatIsANode(t *testing.T) {
	for _, change := range []func(*ledger.GPU){
		func(g *ledger.GPU) { g.HasNode = false },
		func(g *ledger.GPU) { g.Addressing = ledger.AddressingNone },
	} {
		m := superchip()
		m.NodeMemory = func(uint32) (map[uint32]uint64, bool, error) { t.Error("read"); return nil, false, nil }
		change(&m.gpus[1])
		m.introduce(7, View{})
		s := systemReader{Monitor: m.Monitor, state: map[uint32]*systemState{}}
		s.round()
	}
}
