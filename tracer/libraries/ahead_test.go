// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/functions"
	"github.com/vramprof/vramprof/tracer/procfs"
)

func TestProcessesWithoutTheDriverAreThoseThatWillLoadIt(t *testing.T) {
	found := []Mapped{
		{PID: 5, Layer: functions.Runtime}, {PID: 3, Layer: functions.Runtime},
		{PID: 3, Program: true, Layer: functions.Driver}, // not a library
		{PID: 4, Layer: functions.Runtime}, {PID: 4, Layer: functions.Driver},
		{PID: ownPID, Layer: functions.Runtime},
	}
	if got, want := withoutDriver(found), []uint32{3, 5}; !slices.Equal(got, want) {
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
	if len(a.maps) != before+1 {
		t.Errorf("%d files are mapped, want %d", len(a.maps), before+1)
	}
	if a.Close(); len(a.maps) > 0 {
		t.Error("they are still mapped after Close")
	}
}

// scans returns what was found in a process, or in all.
type scans map[uint32][]Mapped

func (s scans) ScanLayouts(pid uint32) ([]Mapped, map[uint32]uint64, error) { return s[pid], nil, nil }

func TestAScanHasTheDriverThatAProcessWillLoad(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "libcuda.so.1"), make([]byte, os.Getpagesize()), 0o600); err != nil {
		t.Fatal(err)
	}
	user := exec.Command("sleep", "60")
	user.Env = []string{"LD_LIBRARY_PATH=" + folder}
	if err := user.Start(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = user.Process.Kill(); _ = user.Wait() })
	pid := uint32(user.Process.Pid)
	for len(procfs.Environ(pid)) == 0 || procfs.Environ(pid)[0] == "" { // exec sets it last
		time.Sleep(time.Millisecond)
	}
	runtime, driver := Mapped{PID: pid, Layer: functions.Runtime}, Mapped{PID: ownPID, Layer: functions.Driver}
	s := scans{0: {runtime, {PID: ownPID, Name: "of before"}}, ownPID: {driver}}
	for _, wanted := range []bool{false, true} {
		a := NewAhead()
		found, _, err := a.Scan(s, 0, false, func(uint32) bool { return wanted })
		want := s[0]
		if wanted {
			want = []Mapped{runtime, driver}
		}
		if err != nil || !slices.Equal(found, want) || (len(a.maps) > 0) != wanted {
			t.Errorf("wanted %v: %d files are mapped, found %+v, %v", wanted, len(a.maps), found, err)
		}
		a.Close()
	}
}
