// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/procfs"
)

func TestProcessesWithoutTheDriverAreThoseThatWillLoadIt(t *testing.T) {
	found := []Mapped{
		{PID: 5, Layer: cudaapi.Runtime}, {PID: 3, Layer: cudaapi.Runtime},
		{PID: 3, Program: true, Layer: cudaapi.Driver}, // not a library
		{PID: 4, Layer: cudaapi.Runtime}, {PID: 4, Layer: cudaapi.Driver},
		{PID: ownPID, Layer: cudaapi.Runtime},
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
	runtime, driver := Mapped{PID: pid, Layer: cudaapi.Runtime}, Mapped{PID: ownPID, Layer: cudaapi.Driver}
	s := scans{0: {runtime, {PID: ownPID, Name: "of before"}}, ownPID: {driver}}
	for _, wanted := range []bool{false, true} {
		a := NewAhead()
		found, _, _, err := a.Scan(s, 0, false, func(uint32) bool { return wanted })
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

// sleeper starts a process of a user with so many folders in which its driver library could be, and
// returns its pid and its environment.
func sleeper(t *testing.T, uid uint32, folders int) (pid uint32, environ []string) {
	t.Helper()
	var list []string
	for range folders {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, "libcuda.so.1"), make([]byte, os.Getpagesize()), 0o644); err != nil {
			t.Fatal(err)
		}
		list = append(list, folder)
	}
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return uint32(cmd.Process.Pid), []string{"LD_LIBRARY_PATH=" + strings.Join(list, ":")}
}

// 1,050 processes with 64 folders each took all mappings that a process may have, and Go ended.
func TestFoldersOfManyProcessesTakeABoundedNumberOfMappings(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for processes of other users")
	}
	a := NewAhead()
	defer a.Close()
	a.Prepare(ownPID, nil) // the files of this machine
	later := 0
	for range 24 {
		pid, environ := sleeper(t, 65534, 20)
		if !a.Prepare(pid, environ) {
			later++
		}
		if n := a.places.Held(pid); n > maxNamed {
			t.Errorf("%d files are mapped for one process, want at most %d", n, maxNamed)
		}
	}
	if n := len(a.maps); n > maxAhead*3/4 || later == 0 {
		t.Errorf("%d files are mapped, %d processes are left for later; want at most %d of all users but the newest", n, later, maxAhead*3/4)
	}
	before := len(a.maps)
	pid, environ := sleeper(t, 0, 1)
	if !a.Prepare(pid, environ) || len(a.maps) != before+1 {
		t.Error("the file of another user's process is not mapped")
	}
	if a.Close(); len(a.maps) > 0 || a.places.Used() > 0 {
		t.Errorf("%d files and %d places are left after Close", len(a.maps), a.places.Used())
	}
}

func TestAFileIsMappedAheadOnceAndForTheProcessThatNamesIt(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "libcuda.so.1"), make([]byte, os.Getpagesize()), 0o600); err != nil {
		t.Fatal(err)
	}
	links := []string{folder}
	for i := range 3 {
		link := filepath.Join(t.TempDir(), fmt.Sprint(i))
		if err := os.Symlink(folder, link); err != nil {
			t.Fatal(err)
		}
		links = append(links, link)
	}
	a := NewAhead()
	defer a.Close()
	pid := uint32(os.Getppid())
	a.Prepare(pid, nil)
	before := len(a.maps)
	if a.Prepare(pid, []string{"LD_LIBRARY_PATH=" + strings.Join(links, ":")}); len(a.maps) != before+1 {
		t.Fatalf("%d files are mapped, want 1", len(a.maps)-before)
	}
	own := a.sakes([]Mapped{{PID: ownPID, Address: uint64(uintptr(unsafe.Pointer(&a.maps[before].memory[0])))}, {PID: ownPID, Address: 7}})
	if own[0].Holder() != pid || own[1].Holder() != ownPID {
		t.Errorf("for the sake of %d and %d, want %d and %d", own[0].Holder(), own[1].Holder(), pid, ownPID)
	}
}
