// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vramprof/vramprof/tracer/functions"
)

func TestProcessesWithoutTheDriverAreThoseThatWillLoadIt(t *testing.T) {
	found := []Mapped{
		{PID: 5, Layer: functions.Runtime}, {PID: 3, Layer: functions.Runtime},
		{PID: 3, Program: true, Layer: functions.Driver}, // not a library
		{PID: 4, Layer: functions.Runtime}, {PID: 4, Layer: functions.Driver},
		{PID: ownPID, Layer: functions.Runtime},
	}
	if got, want := WithoutDriver(found), []uint32{3, 5}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestTheDriverIsMappedFromWhereAProcessWouldLoadIt(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "libcuda.so.1"), make([]byte, os.Getpagesize()), 0o600); err != nil {
		t.Fatal(err)
	}
	a := NewAhead()
	defer a.Close()
	a.Prepare(ownPID, nil) // the files of this machine
	before := len(a.maps)
	environ := []string{"HOME=/", "LD_LIBRARY_PATH=relative:" + folder + ":/nowhere"}
	for range 2 { // the second call skips the folder
		a.Prepare(ownPID, environ)
	}
	if len(a.maps) != before+1 || !a.Any() {
		t.Errorf("%d files are mapped, want %d", len(a.maps), before+1)
	}
	if a.Close(); a.Any() {
		t.Error("they are still mapped after Close")
	}
}
