// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mapCode maps a file of that name as code.
func mapCode(t *testing.T, name string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, make([]byte, 4096), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	code, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		t.Skip("temporary files cannot be mapped as code: ", err)
	}
	t.Cleanup(func() { _ = unix.Munmap(code) })
}

func TestAwaitReturnsWhenCUDAIsMapped(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("tracing needs root")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- Await(ctx) }()
	mapCode(t, "libc10_cuda.so") // PyTorch alone may run on the CPU
	select {
	case err := <-done:
		t.Skip("another program uses CUDA: ", err)
	case <-time.After(2 * awaitPause):
	}
	mapCode(t, "libcuda.so.1")
	if err := <-done; err != nil {
		t.Errorf("libcuda was mapped: %v", err)
	}
	if err := Await(ctx); err != nil {
		t.Errorf("libcuda is mapped already: %v", err)
	}
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("tracing needs root")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Await(ctx); !errors.Is(err, context.Canceled) && err != nil {
		t.Errorf("%v, want the context's error", err)
	}
}
