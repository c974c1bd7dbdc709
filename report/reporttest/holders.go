// SPDX-License-Identifier: Apache-2.0

package reporttest

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/holders"
)

// Walk walks the stored image of a Python with tensors. It took a quarter of a second at that time.
func Walk(t testing.TB, image string, at time.Time) *holders.Result {
	t.Helper()
	f, err := os.Open(filepath.Join("../../tracer/holders/testdata", image))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := holders.ReadImage(f)
	if err != nil {
		t.Fatal(err)
	}
	r, err := holders.Walk(context.Background(), m, holders.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r.At, r.Times = at, holders.Times{Total: 250 * time.Millisecond}
	return r
}
