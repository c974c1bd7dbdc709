// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestListsOfCPUs(t *testing.T) {
	for list, want := range map[string][]int{"0\n": {0}, "0-3\n": {0, 1, 2, 3}, "0-1,4,6-7\n": {0, 1, 4, 6, 7}} {
		if got, err := cpusOf(list); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v, want %v", list, got, err, want)
		}
	}
	for _, list := range []string{"", "a", "3-1", "0-99999", "0,,1", "-1"} {
		if got, err := cpusOf(list); err == nil {
			t.Errorf("%q: %v, want an error", list, got)
		}
	}
}

func TestRingsOfManyCPUsAreSmaller(t *testing.T) {
	for cpus, want := range map[int]int{1: 64, 2: 64, 16: 64, 17: 32, 32: 32, 64: 16, 224: 16, 8192: 16} {
		if got := RingPages(cpus); got != want {
			t.Errorf("%d CPUs: %d pages, want %d", cpus, got, want)
		}
	}
}

// setOnline sets a CPU online or offline, in virtual machines that run nothing but the test.
func setOnline(t *testing.T, cpu int, value string) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/online", cpu), []byte(value), 0); err != nil {
		t.Fatal(err)
	}
}

// mapsOn reports whether Poll reports the mappings of a program that runs on a CPU.
func mapsOn(t *testing.T, m *MappingEvents, cpu int) (told bool) {
	t.Helper()
	runtime.LockOSThread() // the child inherits where it runs
	defer runtime.UnlockOSThread()
	var before, only unix.CPUSet
	only.Set(cpu)
	if err := errors.Join(unix.SchedGetaffinity(0, &before), unix.SchedSetaffinity(0, &only)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("true")
	err := cmd.Run()
	if err = errors.Join(err, unix.SchedSetaffinity(0, &before)); err != nil {
		t.Fatal(err)
	}
	m.Poll(func(pid uint32, _ bool) { told = told || int(pid) == cmd.Process.Pid })
	return told
}

func mappingsWatched(t *testing.T) *MappingEvents {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("tracing needs root")
	}
	m, err := WatchMappings()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func TestMappingsEndTheWait(t *testing.T) {
	m := mappingsWatched(t)
	ctx, cancel := context.WithCancel(t.Context())
	come, ended := make(chan struct{}, 1000), make(chan struct{})
	go func() {
		m.Tell(ctx, time.Millisecond, func() { come <- struct{}{} })
		close(ended)
	}()
	for range 3 {
		for len(come) > 0 {
			<-come
		}
		if err := exec.Command("true").Run(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-come:
		case <-time.After(time.Minute):
			t.Fatal("the start of a program was not reported")
		}
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("Tell still waits after the end of its context")
	}
}

// Tell writes nothing after its return: the descriptor may belong to another file by then.
func TestNothingIsWrittenAfterTheWait(t *testing.T) {
	m := mappingsWatched(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 1000 {
		m.Tell(ctx, time.Millisecond, func() {})
		if _, err := unix.Read(m.end, make([]byte, 8)); err != nil {
			t.Fatalf("Tell returned before it wrote to the eventfd: %v", err)
		}
	}
}

// The last CPU goes offline and comes back. With VRAMPROF_HOTPLUG=1 it really does, for virtual
// machines only; by default only the list changes.
func TestMappingsOnACPUThatComesBackAreReported(t *testing.T) {
	m := mappingsWatched(t)
	all, err := cpusOf(m.online)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 2 {
		t.Skip("there is only one CPU")
	}
	last := all[len(all)-1]
	if !mapsOn(t, m, last) {
		t.Fatalf("mappings on CPU %d are not reported", last)
	}
	without := ""
	for _, cpu := range all[:len(all)-1] {
		without += fmt.Sprintf(",%d", cpu)
	}
	if os.Getenv("VRAMPROF_HOTPLUG") != "" {
		setOnline(t, last, "0")
		defer setOnline(t, last, "1")
		m.looked = time.Time{}
		if changed, err := m.Hotplug(); !changed || err != nil {
			t.Fatalf("offline: %v, %v", changed, err)
		}
		setOnline(t, last, "1")
		if mapsOn(t, m, last) {
			t.Errorf("mappings on CPU %d are reported without a new event", last)
		}
	} else {
		if err := m.follow(without[1:]); err != nil {
			t.Fatal(err)
		}
		if mapsOn(t, m, last) {
			t.Errorf("mappings on CPU %d, which is offline, are reported", last)
		}
	}
	m.looked = time.Time{}
	if changed, err := m.Hotplug(); !changed || err != nil {
		t.Fatalf("online again: %v, %v", changed, err)
	}
	if !mapsOn(t, m, last) {
		t.Errorf("mappings on CPU %d, which came back, are not reported", last)
	}
}
