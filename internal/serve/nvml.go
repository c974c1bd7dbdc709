// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// suspendOnSignal closes NVML on each SIGUSR1 until ctx ends: before GPUs are reset or divided, or
// the driver is replaced.
func (s *server) suspendOnSignal(ctx context.Context) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGUSR1)
	go func() {
		defer signal.Stop(signals)
		for {
			select {
			case <-ctx.Done():
				return
			case <-signals:
			}
			if !s.tracing.Load() {
				continue // it is closed
			}
			if err := s.tracer().SuspendNVML(ctx); err != nil {
				s.log.Error("close NVML", "error", err)
				continue
			}
			s.log.Info("NVML is closed for a minute, or until another process uses CUDA")
		}
	}()
}
