// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/sandbox"
)

// Paged shows what write writes: in a pager if out is a terminal, else, or without a pager, as it
// is. Text for a terminal is styled.
func Paged(out io.Writer, write func(text io.Writer, styled bool) error) error {
	terminal := Is(out) && os.Getenv("TERM") != "dumb"
	var text bytes.Buffer
	if err := write(&text, terminal); err != nil {
		return err
	}
	defer Await(out, "")() // the pager has the terminal
	if terminal && page(text.Bytes()) {
		return nil
	}
	_, err := out.Write(text.Bytes())
	return err
}

// page runs the pager until it ends, and reports whether it ran.
func page(text []byte) bool {
	held, err := sandbox.Effective()
	privileged := err != nil || held != 0 || os.Geteuid() == 0
	command := pager(privileged)
	if command == nil {
		return false
	}
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(text), os.Stdout, os.Stderr
	if startWithoutCapabilities(command) != nil {
		return false
	}
	signal.Ignore(unix.SIGINT) // a key of the pager, which started before and does not inherit this
	command.Wait()             // an error only means that the user has seen enough
	return true
}

// pager returns the command of $PAGER, or of less, the default. It returns nil if there is none.
// With privileges it is always less, which LESSSECURE keeps from starting programs and opening
// files.
func pager(privileged bool) *exec.Cmd {
	wanted, isSet := os.LookupEnv("PAGER")
	if isSet && (wanted == "" || wanted == "cat") {
		return nil
	}
	less, err := exec.LookPath("less")
	var command *exec.Cmd
	switch {
	case isSet && !privileged:
		command = exec.Command("/bin/sh", "-c", wanted) // it may have options
	case err == nil:
		command = exec.Command(less)
	default:
		return nil
	}
	command.Env = os.Environ()
	if privileged {
		command.Env = append(command.Env, "LESSSECURE=1", "LESSOPEN=", "LESSCLOSE=")
	}
	// R shows styles, F ends at once if the text fits the screen, X leaves it there.
	for name, value := range map[string]string{"LESS": "FRX", "LESSCHARSET": "utf-8"} {
		if _, isSet := os.LookupEnv(name); !isSet {
			command.Env = append(command.Env, name+"="+value)
		}
	}
	return command
}

// startWithoutCapabilities starts a command that inherits no capabilities. Root's command has
// root's.
func startWithoutCapabilities(command *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine: its capabilities differ from the others'
		unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
		started <- command.Start()
	}()
	return <-started
}
