// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"go.opentelemetry.io/ebpf-profiler/support"
	"golang.org/x/sys/unix"
)

func TestMappedTablesHaveTheRowsOfUpdatedOnes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	rows := make([]support.StackDelta, 1<<leastMapped-5)
	for i := range rows {
		rows[i] = support.StackDelta{AddrLow: uint16(7 * i), UnwindInfo: uint16(i >> 3)}
	}
	for _, flags := range []uint32{0, unix.BPF_F_MMAPABLE} {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1 << leastMapped, Flags: flags})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if err := fill(m, rows); err != nil {
			t.Fatal(err)
		}
		for i := range uint32(1 << leastMapped) {
			var got, want support.StackDelta
			if i < uint32(len(rows)) {
				want = rows[i]
			}
			if err := m.Lookup(i, &got); err != nil || got != want {
				t.Fatalf("flags %x, row %d: %v, want %v (%v)", flags, i, got, want, err)
			}
		}
	}
}
