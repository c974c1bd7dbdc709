// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/tracer/holders/peek"
	"github.com/vramprof/vramprof/tracer/holders/pythontest"
)

// readAllocations reads what addresses.py wrote: address, bytes, path.
func readAllocations(t *testing.T, name string) (ranges []Range, paths map[uint64]string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var rows [][3]any
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	paths = map[uint64]string{}
	for _, row := range rows {
		address, err := strconv.ParseUint(row[0].(string), 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		ranges = append(ranges, Range{Address: address, Bytes: uint64(row[1].(float64))})
		paths[address] = row[2].(string)
	}
	return ranges, paths
}

// TestAddressesOfTheDriverHaveTheirHolders: programs without PyTorch keep what cuMemAlloc returned.
func TestAddressesOfTheDriverHaveTheirHolders(t *testing.T) {
	fake := fakecuda.Build(t)
	script, err := filepath.Abs("../../testdata/holders/addresses.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range pythontest.Programs(t) {
		t.Run(filepath.Base(program), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "truth.json")
			cmd := exec.Command(program, script, file)
			cmd.Env = fake.Env(t, 1, 1<<30)
			p := pythontest.Start(t, cmd)
			checkAllocations(t, p, file, Options{})
			checkAllocations(t, p, file, Options{MaxMemory: 1 << 20})
		})
	}
}

func checkAllocations(t *testing.T, p *peek.Process, file string, o Options) {
	t.Helper()
	ranges, paths := readAllocations(t, file)
	o.Addresses = ranges
	r, err := Walk(context.Background(), p, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Storages) != len(ranges) {
		t.Errorf("%d of %d allocations", len(r.Storages), len(ranges))
	}
	for _, s := range r.Storages {
		got, want := lineNumber.ReplaceAllString(s.Holder.String(), "py:LINE)"), paths[s.Address]
		if got != want || !s.Allocation || s.Inside != strings.Contains(want, "inside") || s.InMotion {
			t.Errorf("%s: found as %s: %+v", want, got, s)
		}
	}
	t.Logf("Python %s: %d allocations, %d objects, %d MiB, %+v, %q", r.Python, len(ranges), r.Objects, r.Copied>>20, r.Times, r.Problems)
}

// TestArraysOfNumba needs Debian's python3-numba, which runs on the fake driver.
func TestArraysOfNumba(t *testing.T) {
	fake := fakecuda.Build(t)
	script, err := filepath.Abs("../../testdata/holders/numba_arrays.py")
	if err != nil {
		t.Fatal(err)
	}
	program := "/usr/bin/python3"
	if found, _ := filepath.Glob("/usr/lib/python3/dist-packages/numba/__init__.py"); found == nil {
		t.Skip("no numba (scripts/install.sh test installs it)")
	}
	file := filepath.Join(t.TempDir(), "truth.json")
	cmd := exec.Command(program, script, file)
	cmd.Env = fake.Env(t, 1, 1<<30)
	checkAllocations(t, pythontest.Start(t, cmd), file, Options{})
}
