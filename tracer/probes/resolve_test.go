// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/libraries"
)

func TestResolveListsFoundAndMissingInTheTablesOrder(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip(err)
	}
	var have, lack []string
	code := ""
	for i, row := range cudaapi.Table {
		switch {
		case row.Layer != cudaapi.Driver:
		case i%3 == 0:
			have = append(have, row.Name)
			code = fmt.Sprintf("int %s(int a) { return a; }\n", row.Name) + code // not the table's order
		default:
			lack = append(lack, row.Name)
		}
	}
	dir := t.TempDir()
	source, library := filepath.Join(dir, "some.c"), filepath.Join(dir, "libcuda.so.1")
	if err := os.WriteFile(source, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	f, err := os.Open(library)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := Resolve(f, cudaapi.Driver)
	if err != nil {
		t.Fatal(err)
	}
	if got := rows.names(); !slices.Equal(got, have) {
		t.Errorf("found %v\nwant %v", got, have)
	}
	if !slices.Equal(rows.Missing, lack) {
		t.Errorf("missing %v\nwant %v", rows.Missing, lack)
	}
}

func (r Rows) names() (list []string) {
	for _, at := range r.Found {
		list = append(list, at.Name)
	}
	return list
}

func TestLibrariesLooksIntoABoundedNumberOfFilesOnceEach(t *testing.T) {
	var found []libraries.Mapped
	for pid := range uint32(3) {
		for inode := range uint64(maxListed + 44) {
			layer := cudaapi.Layer(inode % 2)
			found = append(found, libraries.Mapped{PID: pid + 1, File: libraries.FileKey{Inode: inode}, Layer: layer, Name: "libcud", Path: "/proc/none"})
		}
	}
	list, more := resolveAll(found)
	if len(list) != maxListed || more != 44 {
		t.Fatalf("%d files and %d more, want %d and 44", len(list), more, maxListed)
	}
	for i, l := range list {
		if len(l.PIDs) != 3 || l.Err == nil || (l.Layer == cudaapi.Driver) != (i < maxListed/2) {
			t.Fatalf("file %d: %+v", i, l)
		}
	}
}
