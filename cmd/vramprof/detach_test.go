// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// typedEnv has the child of TestKeysTypedWhileAScreenEndsDoNotGoToTheShell discard its keys.
const typedEnv = "VRAMPROF_TEST_TYPED"

func TestKeysTypedWhileAScreenEndsDoNotGoToTheShell(t *testing.T) {
	if os.Getenv(typedEnv) != "" { // it has the terminal, as a shell's command has
		os.Stdin.Read(make([]byte, 1))
		discardKeys()
		fmt.Println("discarded")
		var line string
		fmt.Scanln(&line)
		fmt.Printf("the shell got %q\n", line)
		return
	}
	master, slave := openPTY(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestKeysTypedWhileAScreenEndsDoNotGoToTheShell$")
	cmd.Env = append(os.Environ(), typedEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	fmt.Fprint(master, "q\nrm -r important\n")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	var shown strings.Builder
	until := func(text string) {
		t.Helper()
		_ = master.SetReadDeadline(time.Now().Add(20 * time.Second))
		for part := make([]byte, 4096); !strings.Contains(shown.String(), text); {
			n, err := master.Read(part)
			if err != nil {
				t.Fatalf("%v; the terminal shows %q", err, shown.String())
			}
			shown.Write(part[:n])
		}
	}
	until("discarded")
	fmt.Fprintln(master, "ls")
	until(`the shell got "ls"`)
	_ = cmd.Wait()
}

// openPTY returns both ends of a new terminal.
func openPTY(t *testing.T) (master, slave *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Skip("no terminals: ", err)
	}
	master = os.NewFile(uintptr(fd), "ptmx")
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

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
