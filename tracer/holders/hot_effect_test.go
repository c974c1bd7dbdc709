// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/holders/pythontest"
)

// TestEffectOnTraining compares the steps of a training while it is walked without a pause with
// those while it is not, and while a loop that reads nothing takes as much of a processor. It runs
// with VRAMPROF_EFFECT only: it needs a machine for itself.
func TestEffectOnTraining(t *testing.T) {
	if os.Getenv("VRAMPROF_EFFECT") == "" {
		t.Skip("set VRAMPROF_EFFECT")
	}
	script, err := filepath.Abs("../../testdata/holders/hot.py")
	if err != nil {
		t.Fatal(err)
	}
	for name, command := range torches(t) {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "log")
			p := pythontest.Start(t, command(script, file))
			var alone, busy, walked []float64
			for range 5 {
				alone = append(alone, steps(t, file, func() { time.Sleep(2 * time.Second) }))
				busy = append(busy, steps(t, file, func() {
					for begin := time.Now(); time.Since(begin) < 2*time.Second; {
					}
				}))
				walked = append(walked, steps(t, file, func() {
					for begin := time.Now(); time.Since(begin) < 2*time.Second; {
						if _, err := Walk(context.Background(), p, Options{Host: true}); err != nil {
							t.Fatal(err)
						}
					}
				}))
			}
			slices.Sort(alone)
			slices.Sort(busy)
			slices.Sort(walked)
			t.Logf("steps a second alone %.0f, beside a loop %.0f, walked in a loop %.0f: %.3f of alone, %.3f of the loop (medians of %.0f, %.0f and %.0f)",
				alone[2], busy[2], walked[2], walked[2]/alone[2], walked[2]/busy[2], alone, busy, walked)
		})
	}
}

// steps returns how many things a job has kept a second: one in each step.
func steps(t *testing.T, file string, during func()) float64 {
	size := func() int64 {
		st, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		return st.Size()
	}
	before, begin := size(), time.Now()
	during()
	return float64(size()-before) / 160 / time.Since(begin).Seconds() // about the bytes of a step
}
