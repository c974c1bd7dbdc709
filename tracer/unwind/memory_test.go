// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"os"
	"testing"

	"github.com/cilium/ebpf"
)

// TestRowTakesWhatTheKernelSays compares the memory of a row with the kernel's figure.
func TestRowTakesWhatTheKernelSays(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	const rows = 1 << 16
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: rows})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil {
		t.Fatal(err)
	}
	n, _ := info.Memlock()
	if n == 4*rows {
		t.Skip("the kernel is older than 6.4: it reports the contents of a map, not its memory")
	}
	if n/rows != bytesOfRow {
		t.Errorf("%d rows take %d bytes, want %d each", rows, n, bytesOfRow)
	}
}
