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

// setOnline writes whether a cpu is online; for virtual machines of the tests' own only.
func setOnline(t *testing.T, cpu int, value string) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/online", cpu), []byte(value), 0); err != nil {
		t.Fatal(err)
	}
}

// mapsOn says whether mappings are told of a program that runs on a cpu.
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

func TestMappingsWakeWhoWaits(t *testing.T) {
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
			t.Fatal("nothing was told of a program that began")
		}
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("it waits although nobody wants to know any more")
	}
}

// Once the waiting is over nothing is written any more: the number may be that of another file by then.
func TestNothingIsWrittenAfterTheWait(t *testing.T) {
	m := mappingsWatched(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 1000 {
		m.Tell(ctx, time.Millisecond, func() {})
		if _, err := unix.Read(m.end, make([]byte, 8)); err != nil {
			t.Fatalf("what ends the wait is still to be written: %v", err)
		}
	}
}

// The last cpu goes and comes back. With VRAMPROF_HOTPLUG=1 it really does, which only a virtual machine of
// one's own should be asked for; else the list alone says so.
func TestMappingsOnACPUThatComesBackAreTold(t *testing.T) {
	m := mappingsWatched(t)
	all, err := cpusOf(m.online)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 2 {
		t.Skip("there is one cpu only")
	}
	last := all[len(all)-1]
	if !mapsOn(t, m, last) {
		t.Fatalf("mappings on cpu %d are not told", last)
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
			t.Errorf("mappings on cpu %d are told without a new event", last)
		}
	} else {
		if err := m.follow(without[1:]); err != nil {
			t.Fatal(err)
		}
		if mapsOn(t, m, last) {
			t.Errorf("mappings on cpu %d are told, which was said to be offline", last)
		}
	}
	m.looked = time.Time{}
	if changed, err := m.Hotplug(); !changed || err != nil {
		t.Fatalf("online again: %v, %v", changed, err)
	}
	if !mapsOn(t, m, last) {
		t.Errorf("mappings on cpu %d, which came back, are not told", last)
	}
}
