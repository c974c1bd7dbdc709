// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"strings"
	"testing"

	reportjson "github.com/vramprof/vramprof/report/json"
)

// TestProbesFitEveryTerminal has the longest name of the probe table.
func TestProbesFitEveryTerminal(t *testing.T) {
	r := &reportjson.LibrariesReport{Libraries: []reportjson.LibraryReport{{
		Name: "libcudart.so.12", Layer: "runtime", PIDs: []uint32{1, 2, 3, 4, 5}, Missing: []string{"cudaMallocManaged", "cudaFreeHost"},
		Functions: []reportjson.ProbeReport{
			{Function: "cudaExternalMemoryGetMappedMipmappedArray", Offset: 10, Emulated: true, Shape: "endbr64+cmpl+je", Code: strings.Repeat("41", 16)},
			{Function: "cudaFree", Shape: "single-step", Code: "c3"},
		},
	}}, More: 3}
	for _, columns := range []int{44, 80, 120} {
		var b bytes.Buffer
		writeLibraries(&b, r, columns, true)
		for line := range strings.Lines(b.String()) {
			if len(strings.TrimSuffix(line, "\n")) > columns {
				t.Errorf("more than %d columns: %s", columns, line)
			}
		}
		said := strings.Join(strings.Fields(b.String()), " ")
		for _, want := range []string{
			"(processes 1, 2, 3 and 2 more) 2 of 4 traced runtime functions not in this file: cudaMallocManaged, cudaFreeHost",
			"cudaExternalMemoryGetMappedMipmappedArray +10 endbr64+cmpl+je emulates " + strings.Repeat("41", 16), "cudaFree +0 single-step steps c3", "3 more files",
		} {
			if !strings.Contains(said, want) {
				t.Errorf("%d columns: no %q in\n%s", columns, want, b.String())
			}
		}
	}
}
