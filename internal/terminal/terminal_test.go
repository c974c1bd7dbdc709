// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestWidthIsThatOfTheTerminal(t *testing.T) {
	for columns, want := range map[string]int{"": 80, "many": 80, "0": 80, "-3": 80, "1": 20, "20": 20, "33": 33, "200": 200, "99999": 1000} {
		t.Setenv("COLUMNS", columns)
		if got := Width(); got != want {
			t.Errorf("COLUMNS=%s: %d columns, want %d", columns, got, want)
		}
	}
}

// typedEnv has the child of TestKeysTypedWhileAScreenEndsDoNotGoToTheShell discard its keys.
const typedEnv = "VRAMPROF_TEST_TYPED"

func TestKeysTypedWhileAScreenEndsDoNotGoToTheShell(t *testing.T) {
	if os.Getenv(typedEnv) != "" { // it has the terminal, as a shell's command has
		os.Stdin.Read(make([]byte, 1))
		DiscardKeys()
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
