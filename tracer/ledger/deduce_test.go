// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"
	"testing"
	"time"
)

func TestGrowthThatFitsOneGPUOnlySaysWhereAllocationsAre(t *testing.T) {
	const begin = `
		devices GPU-a GPU-b
		usage t=1 GPU-a=300000000 GPU-b=300000000
		`
	for name, c := range map[string]struct {
		script  string
		want    []string
		deduced uint64
	}{
		"one has grown": {begin + `
			alloc t=2 addr=a size=50000000
			usage t=3 GPU-a=300000000 GPU-b=351000000`, []string{"1:50000000"}, 50000000},
		"beside what is known there": {begin + `
			alloc t=2 addr=a size=50000000
			alloc t=2 addr=b size=10000000 dev=1
			usage t=3 GPU-a=300000000 GPU-b=361000000`, []string{"1:60000000"}, 50000000},
		"both have": {begin + `
			alloc t=2 addr=a size=50000000
			usage t=3 GPU-a=350000000 GPU-b=351000000`, []string{"-1:50000000"}, 0},
		"another has grown by more": {begin + `
			alloc t=2 addr=a size=50000000
			usage t=3 GPU-a=400000000 GPU-b=351000000`, []string{"-1:50000000"}, 0},
		"none by as much": {begin + `
			alloc t=2 addr=a size=50000000
			usage t=3 GPU-a=320000000 GPU-b=330000000`, []string{"-1:50000000"}, 0},
		"less than a page": {begin + `
			alloc t=2 addr=a size=5000
			usage t=3 GPU-a=300000000 GPU-b=300005000`, []string{"-1:5000"}, 0},
		"a rough reading": {begin + `
			alloc t=2 addr=a size=50000000
			usage t=3 GPU-a=~300000000 GPU-b=~350000000`, []string{"-1:50000000"}, 0},
		"what the baseline has": {`
			devices GPU-a GPU-b
			alloc t=1 addr=a size=50000000
			usage t=2 GPU-a=300000000 GPU-b=350000000
			usage t=3 GPU-a=300000000 GPU-b=400000000`, []string{"-1:50000000"}, 0},
		"no ordinal of it is known": {`
			usage t=1 GPU-a=300000000 GPU-b=300000000
			alloc t=2 addr=a size=50000000
			usage t=3 GPU-a=300000000 GPU-b=350000000`, []string{"-1:50000000"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := play(t, c.script)
			s := l.Snapshot(9e9, time.Time{})
			checkBooks(t, s)
			checkLedger(t, l)
			if got := onDevices(s); !slices.Equal(got, c.want) || s.Processes[0].Deduced != c.deduced {
				t.Errorf("bytes by device %v, %d deduced; want %v, %d", got, s.Processes[0].Deduced, c.want, c.deduced)
			}
		})
	}
}

func TestWhatMovesTakesItsShareOfTheBaselineAlong(t *testing.T) {
	s := play(t, `
		devices GPU-a GPU-b
		alloc t=1 addr=a size=100
		usage t=2 GPU-a=300 GPU-b=400
		alloc t=3 addr=b size=50
		usage t=4 GPU-a=300 GPU-b=450
		learn t=5 dev=1`).Snapshot(9e9, time.Time{})
	checkPartsOf(t, s, [4]int64{0, 300, 0, 0}, [4]int64{150, 300, 0, 0})
}
