// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net"
	"os"
	"testing"

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
