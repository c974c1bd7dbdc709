// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/vramprof/vramprof/tracer/holders/pythontest"
)

func TestBucketsOfDistributedTraining(t *testing.T) {
	script, err := filepath.Abs("../../testdata/holders/ddp.py")
	if err != nil {
		t.Fatal(err)
	}
	for name, command := range torches(t) {
		t.Run(name, func(t *testing.T) {
			p := pythontest.Start(t, command(script))
			r, err := Walk(context.Background(), p, Options{Host: true})
			if err != nil {
				t.Fatal(err)
			}
			sums, buckets := map[string]uint64{}, 0
			for _, s := range r.Storages {
				sums[s.Holder.Pattern()] += s.Bytes
				if s.Holder.Pattern() == "ddp.reducer" {
					buckets++
				}
			}
			if buckets != 2 {
				t.Errorf("%d buckets, want 2", buckets)
			}
			if r.Automatic != AutomaticOn {
				t.Errorf("the collector is %d, want on", r.Automatic)
			}
			const weights, biases = 2 * 4 * 256 * 256, 2 * 4 * 256
			for path, want := range map[string]uint64{
				"model.*.weight": weights, "model.*.weight.grad": weights, "model.*.bias": biases, "ddp.reducer": weights + biases,
			} {
				if sums[path] != want {
					t.Errorf("%s holds %d bytes, want %d; all: %v", path, sums[path], want, sums)
				}
			}
		})
	}
}
