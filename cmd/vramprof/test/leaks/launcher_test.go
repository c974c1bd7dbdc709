// SPDX-License-Identifier: Apache-2.0

package leaks

import (
	"encoding/json"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// startLauncher starts the process that starts programs with PyTorch.
func (m *machine) startLauncher(t *testing.T) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "launcher"), os.NewFile(uintptr(pair[1]), "launcher")
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		t.Fatal(err)
	}
	cmd := m.torch.Command(m.torchEnv, corpusFile("launch.py"))
	cmd.Stderr, cmd.ExtraFiles = os.Stderr, []*os.File{theirs}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	m.launcher = conn.(*net.UnixConn)
	t.Cleanup(func() {
		m.launcher.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("launch.py: %v", err)
		}
	})
}

// launch asks the launcher to start a program.
func (m *machine) launch(t *testing.T, argv []string, env map[string]string, stdin, stdout *os.File) {
	t.Helper()
	request, err := json.Marshal(map[string]any{"argv": argv, "env": env})
	if err != nil {
		t.Fatal(err)
	}
	files := unix.UnixRights(int(stdin.Fd()), int(stdout.Fd()))
	if _, _, err := m.launcher.WriteMsgUnix(request, files, nil); err != nil {
		t.Fatal(err)
	}
}
