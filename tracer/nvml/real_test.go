// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package nvml

import (
	"debug/elf"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// NVIDIA's libraries, as scripts/check-real-libs.sh fetches them, must have all required functions,
// and one of them must have every function that this package calls.
func TestRealLibrariesHaveTheFunctionsWeCall(t *testing.T) {
	dir := os.Getenv("VRAMPROF_REAL_LIBS")
	if dir == "" {
		t.Skip("VRAMPROF_REAL_LIBS names no folder with NVIDIA's libraries (scripts/check-real-libs.sh)")
	}
	files, ever := 0, map[string]bool{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !strings.HasPrefix(d.Name(), "libnvidia-ml.so.") {
			return err
		}
		files++
		exported := exportsOf(t, path)
		var old, lacks []string
		for name, suffixes := range versions {
			i := slices.IndexFunc(suffixes, func(s string) bool { return exported[name+s] })
			switch {
			case i < 0 && slices.Contains(required, name):
				t.Errorf("%s lacks %s", d.Name(), name)
			case i < 0:
				lacks = append(lacks, name)
			case i > 0:
				old = append(old, name+suffixes[i])
			}
			ever[name] = ever[name] || i >= 0
		}
		slices.Sort(old)
		slices.Sort(lacks)
		t.Logf("%-28s has %d of %d functions, of an older version %v, lacks %v", d.Name(), len(versions)-len(lacks), len(versions), old, lacks)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files == 0 {
		t.Skip("no libnvidia-ml in " + dir)
	}
	for name := range versions {
		if !ever[name] && name != "nvmlDeviceGetAddressingMode" { // newer than 555
			t.Errorf("none of the libraries has %s", name)
		}
	}
}

func exportsOf(t *testing.T, path string) map[string]bool {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	exported := map[string]bool{}
	for _, s := range symbols {
		exported[s.Name] = s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_FUNC
	}
	return exported
}
