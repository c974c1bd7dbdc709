// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/terminal"
)

// patience is how long an interrupted run may take to end.
const patience = 30 * time.Second

// record runs the command under "vramprof record" in a process of its own: tracing gives up the
// privileges that the next run needs. It returns the exit status, which may be the command's. What
// both print goes to stderr, because stdout has the result.
func record(ctx context.Context, o Options, path string) (status int, err error) {
	arguments := slices.Concat([]string{"record", "--no-summary", "--no-oom", "--holders=off", "-o", path}, o.Record, []string{"--"}, o.Command)
	cmd := exec.CommandContext(ctx, "/proc/self/exe", arguments...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, terminal.File(o.Stderr), terminal.File(o.Stderr)
	defer terminal.Await(o.Stderr, "")() // the command has the terminal
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGINT) }
	cmd.WaitDelay = patience
	err = cmd.Run()
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended) && ended.ExitCode() > 0:
		return ended.ExitCode(), nil
	case err != nil && ctx.Err() == nil:
		return 0, fmt.Errorf("run vramprof record: %w", err)
	}
	return 0, nil
}
