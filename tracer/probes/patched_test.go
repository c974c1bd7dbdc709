// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/patches"
)

// The kernel would set breakpoints for the instructions that the file had before.
func TestAFileWhoseCodeHasChangedIsProbedAgain(t *testing.T) {
	for _, found := range []string{"by the review", "by a new process"} {
		var x told
		s := x.files(false)
		l := mapped(t, 7, cudaapi.Driver, "libcuda.so.1", "x")
		s.Probe([]libraries.Mapped{l})
		look := func() {
			if found == "by the review" {
				s.Review()
			} else {
				s.Probe([]libraries.Mapped{l})
			}
		}
		if err := os.Chmod(l.Path, 0o644); err != nil {
			t.Fatal(err)
		}
		look()
		if len(x.probed) != 1 || len(x.warnings) != 0 {
			t.Errorf("%s: after a change of rights probed %q, told %q", found, x.probed, x.warnings)
		}
		if err := os.WriteFile(l.Path, []byte("y"), 0o600); err != nil {
			t.Fatal(err)
		}
		look()
		if len(x.probed) != 2 || len(x.warnings) != 1 || !strings.Contains(x.warnings[0], "libcuda.so.1 was overwritten") {
			t.Errorf("%s: after a change of code probed %q, told %q", found, x.probed, x.warnings)
		}
		if n := s.places.Held(7); n != 1 {
			t.Errorf("%s: %d places are taken, want 1", found, n)
		}
	}
}

// comparisons imitates Code.Find: it cannot compare the memory of process 7 before it was asked
// often enough.
type comparisons struct{ delays, asked int }

func (c *comparisons) find(_ *patches.Code, _ string, list []libraries.Mapped) []patches.Patch {
	if len(list) == 0 {
		return nil
	}
	if c.asked++; c.asked > c.delays {
		return nil
	}
	return []patches.Patch{{PID: 7, Err: errors.New("it takes too long")}}
}

// A busy machine delays a comparison as a hostile process does.
func TestAFileThatCouldNotBeComparedIsLookedAtAgainAfterGrowingPauses(t *testing.T) {
	var x told
	s := x.files(false)
	c := comparisons{delays: 8}
	s.compare = c.find
	s.Probe([]libraries.Mapped{mapped(t, 7, cudaapi.Torch, "libc10.so", "x")})
	if len(x.probed) > 0 || len(x.warnings) != 1 {
		t.Fatalf("probed %q, told %q", x.probed, x.warnings)
	}
	begin := time.Now()
	var looks []int // at which second
	for second := range 600 {
		before := c.asked
		s.probeDoubted(begin.Add(time.Duration(second) * time.Second))
		if c.asked > before {
			looks = append(looks, second)
		}
	}
	if want := []int{0, 1, 3, 7, 15, 31, 63, 123}; len(x.probed) != 1 || len(x.warnings) != 1 || !slices.Equal(looks, want) {
		t.Errorf("probed %q, told %q; looked again after %d s, want %d", x.probed, x.warnings, looks, want)
	}
}

// A process that stalls a look must not take the probes away from all others.
func TestAProcessThatStallsAComparisonTakesBackNoProbes(t *testing.T) {
	var x told
	s := x.files(false)
	var again []uint32
	s.options.Again = func(pid uint32) { again = append(again, pid) }
	l := mapped(t, 7, cudaapi.Driver, "libcuda.so.1", "x")
	s.Probe([]libraries.Mapped{l})
	c := comparisons{delays: 1}
	s.compare = c.find
	s.Probe([]libraries.Mapped{l})
	if !s.has(l.File) || len(x.warnings) > 0 || !slices.Equal(again, []uint32{7}) {
		t.Errorf("probed: %v, told %q; processes %d are scanned again, want 7", s.has(l.File), x.warnings, again)
	}
}
