// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"errors"
	"maps"
	"os"
	"strings"
	"testing"
)

func TestOnlyAnonymousMemoryIsCountedByNode(t *testing.T) {
	const text = `aaaac0000000 default file=/usr/bin/python3.12 mapped=50 N0=50 kernelpagesize_kB=64
aaaae0000000 default heap anon=30 dirty=30 N0=20 N1=10 kernelpagesize_kB=64
ffff00000000 bind:1 anon=4096 dirty=4096 N1=4096 kernelpagesize_kB=64
ffff40000000 default file=/dev/nvidia-uvm mapped=512 N1=512 kernelpagesize_kB=64
ffff50000000 default file=/dev/shm/N1=9\040x dirty=512 N1=512 kernelpagesize_kB=64
ffff60000000 default huge anon=2 dirty=2 N1=2 kernelpagesize_kB=524288
ffff70000000 default stack anon=3 dirty=3 N0=3 kernelpagesize_kB=64
ffff80000000 default
ffff90000000 default anon=18446744073709551615 N1=18446744073709551615 Nx=1 N99999999=1 kernelpagesize_kB=64
`
	on, cut, err := parseNumaMaps(strings.NewReader(text), 1<<20)
	want := map[uint32]uint64{0: 23 * 64 << 10, 1: (10+4096)*64<<10 + 2*512<<20}
	if err != nil || cut || !maps.Equal(on, want) {
		t.Errorf("got %v, %v, %v, want %v", on, cut, err, want)
	}
	if _, cut, _ := parseNumaMaps(strings.NewReader(text), 200); !cut {
		t.Error("a list that was cut is not marked")
	}
}

func TestThisProcessHasMemoryOnANode(t *testing.T) {
	on, cut, err := NodeMemory(uint32(os.Getpid()))
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("this kernel knows no NUMA nodes")
	}
	var sum uint64
	for _, n := range on {
		sum += n
	}
	if err != nil || cut || sum < 64<<10 {
		t.Errorf("got %v, %v, %v", on, cut, err)
	}
}

func FuzzNumaMaps(f *testing.F) {
	f.Add("ffff00000000 bind:1 anon=4096 N1=4096 kernelpagesize_kB=64\n")
	f.Fuzz(func(t *testing.T, text string) {
		on, _, _ := parseNumaMaps(strings.NewReader(text), 1<<16)
		for node, n := range on {
			if node > 1<<16 || n > maxNodeBytes {
				t.Errorf("node %d has %d bytes", node, n)
			}
		}
	})
}
