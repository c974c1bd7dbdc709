// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

func TestWhatAKilledServerNeedsAgainHasDescriptorsAboveThoseOfProbes(t *testing.T) {
	var socket net.Listener
	if err := aboveProbes(func() (err error) { socket, err = net.Listen("tcp", "127.0.0.1:0"); return err }); err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	file, err := socket.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = file.Control(func(fd uintptr) {
		if fd <= aboveDescriptor {
			t.Errorf("the socket is descriptor %d", fd)
		}
	})
	probe, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Close()
	if probe.Fd() >= aboveDescriptor {
		t.Errorf("what is opened later is descriptor %d", probe.Fd())
	}
}

func TestADetachThatTakesLongSaysWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		end := sayLater(&said, "detaching")
		time.Sleep(detachQuiet - 1)
		end()
		time.Sleep(time.Minute)
		if said.Len() > 0 {
			t.Errorf("a short one says %q", said.String())
		}
		defer sayLater(&said, "detaching")()
		time.Sleep(time.Minute)
		if said.String() != "detaching\n" {
			t.Errorf("a long one says %q", said.String())
		}
	})
}

func TestFewDescriptorsLeaveRoomForSockets(t *testing.T) {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1024, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &before)
	if err := aboveProbes(func() error {
		socket, err := net.Listen("tcp", "127.0.0.1:0")
		if err == nil {
			socket.Close()
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}
