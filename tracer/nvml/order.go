// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// CUDA's rule for numbering GPUs of different models, fastest first, is not published. A child
// process asks the driver: it initializes CUDA, creates no context, and exits.
const (
	orderPatience = 5 * time.Second
	maxOrder      = 64 << 10 // bytes of its output
)

// LearnOrder runs a command that prints CUDA's own order of the GPUs, as PrintOrder does, if the
// GPUs are of different models. If the command hangs or fails, only the order stays unknown.
func (d *Driver) LearnOrder(ctx context.Context, gpus []ledger.GPU, command ...string) error {
	if sameModel(whole(gpus)) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, orderPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "CUDA_VISIBLE_DEVICES=") || strings.HasPrefix(v, "CUDA_DEVICE_ORDER=")
	})
	cmd.WaitDelay = time.Second
	out := &untrusted.Buffer{Room: maxOrder}
	cmd.Stdout = out
	if err := run(ctx, cmd); err != nil {
		return fmt.Errorf("ask CUDA for the order of its GPUs: %w", err)
	}
	var order []string
	for lines := bufio.NewScanner(bytes.NewReader(out.Text)); lines.Scan(); {
		if uuid := lines.Text(); strings.HasPrefix(uuid, "GPU-") && !slices.Contains(order, uuid) && len(order) < maxVisible {
			order = append(order, uuid)
		}
	}
	d.order.Store(&order)
	return nil
}

// run waits for a command until ctx ends. It cannot rely on killing the process: a process inside
// the driver may be unkillable.
func run(ctx context.Context, cmd *exec.Cmd) error {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Run() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(2 * cmd.WaitDelay):
		return ctx.Err()
	}
}

func whole(gpus []ledger.GPU) (list []ledger.GPU) {
	for _, gpu := range gpus {
		if gpu.Parent == "" {
			list = append(list, gpu)
		}
	}
	return list
}

func uuidText(u [16]byte) string {
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
