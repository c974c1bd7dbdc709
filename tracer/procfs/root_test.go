// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"os"
	"os/exec"
	"testing"
)

func TestAProcessInAContainerHasItsOwnRoot(t *testing.T) {
	if OwnRoot(uint32(os.Getpid())) || OwnRoot(1<<22+1) {
		t.Error("this process, or none, has another root")
	}
	for _, args := range [][]string{
		{"unshare", "--mount", "sh", "-c", "echo; read x"},
		{"unshare", "--root=/proc/self/root/../usr", "/bin/sh", "-c", "echo; read x"},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Skip(err)
		}
		if n, _ := out.Read(make([]byte, 1)); n == 0 {
			t.Logf("%q cannot run here", args) // not as root, or no /usr/lib64
		} else if !OwnRoot(uint32(cmd.Process.Pid)) {
			t.Errorf("%q has no root of its own", args)
		}
		in.Close()
		cmd.Wait()
	}
}
