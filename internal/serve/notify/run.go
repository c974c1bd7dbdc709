// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

// run runs the command for an event, in a process group of its own that a timeout ends.
func (s *setup) run(e event) Result {
	ctx, cancel := context.WithTimeout(context.Background(), s.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", s.Commands[e.Kind])
	cmd.Stdin = bytes.NewReader(append(e.Input, '\n'))
	output := &head{}
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second // for children that keep its output open
	x := Result{Kind: e.Kind}
	if err := cmd.Run(); ctx.Err() != nil {
		x.Error = fmt.Sprintf("killed after %v", s.Timeout)
	} else if err != nil {
		x.Error = err.Error()
	}
	x.Output = string(bytes.ToValidUTF8(output.text, []byte("?")))
	return x
}

// head keeps the first bytes that are written.
type head struct{ text []byte }

func (h *head) Write(text []byte) (int, error) {
	h.text = append(h.text, text[:min(len(text), maxOutput-len(h.text))]...)
	return len(text), nil
}
