// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// TestDetailsOfBlocksPassTheVerifier loads the probes on reports with and without details, of the
// objects for all kernels. The verifier's limit is a million instructions, and older kernels may
// need twice as many.
func TestDetailsOfBlocksPassTheVerifier(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for name, load := range map[string]func() (*ebpf.CollectionSpec, error){"guarded": loadGuarded, "unguarded": loadProbe, "older": loadOlder} {
		looked := map[string]uint32{}
		for details := range uint32(2) {
			spec, err := load()
			if err != nil {
				t.Fatal(err)
			}
			if err := spec.Variables["wants_details"].Set(details); err != nil {
				t.Fatal(err)
			}
			spec.Programs = map[string]*ebpf.ProgramSpec{"block_reported": spec.Programs["block_reported"], "block_detailed": spec.Programs["block_detailed"]}
			for _, m := range spec.Maps {
				switch m.Name { // the unwinder's own, which are larger
				case "per_cpu_records", "metrics", "py_procs", "interpreter_offsets", "pid_page_to_mapping_info":
					m.ValueSize = 32 << 10
				}
				if m.Type == ebpf.Hash || m.Type == ebpf.Stack || m.Type == ebpf.Array && m.Name[0] != '.' {
					m.MaxEntries = min(m.MaxEntries, 16)
				}
			}
			coll, err := ebpf.NewCollection(spec)
			if errors.Is(err, unix.ENOSYS) {
				t.Skip("the kernel is simulated")
			}
			if err != nil {
				t.Fatalf("%s, details %d: %v", name, details, err)
			}
			defer coll.Close()
			for program, p := range coll.Programs {
				info, err := p.Info()
				if err != nil {
					t.Fatal(err)
				}
				n, _ := info.VerifiedInstructions()
				looked[fmt.Sprint(program, " ", details)] = n
			}
		}
		t.Logf("%s: %v instructions", name, looked)
		if n, without := looked["block_reported 1"], looked["block_reported 0"]; n > without+without/10 || looked["block_detailed 1"] > 200_000 {
			t.Errorf("%s: the verifier looked at %v instructions", name, looked)
		}
	}
}
