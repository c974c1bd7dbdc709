// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"os"

	"github.com/cilium/ebpf/ringbuf"
)

// IsRingEmpty reports whether err, of a read from a ring, means that there is nothing more to read
// now.
func IsRingEmpty(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, ringbuf.ErrFlushed) || errors.Is(err, ringbuf.ErrClosed)
}
