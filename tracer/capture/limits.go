// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"

	"github.com/vramprof/vramprof/internal/untrusted"
)

// Limits of reading: a base for every capture plus an amount per byte of the file. Real captures
// stay far below: an event takes 8 bytes, and compression reduces frames to a third or less. The
// bases of all limits together allow about 512 MiB and a minute of CPU time.
type limit struct {
	base, perByte float64
	what          string
}

var (
	unpackedLimit = limit{32 << 20, 64, "bytes of decompressed frames"}
	eventLimit    = limit{2 << 20, 2, "events"}
	liveLimit     = limit{1 << 20, 2, "live allocations"}
	siteLimit     = limit{8 << 10, 1. / 8, "sites of allocations"}
	processLimit  = limit{4 << 10, 1. / 32, "processes"}
	tensorsLimit  = limit{1 << 10, 1. / 64, "PyTorch allocators"}
	stepLimit     = limit{1 << 30, 1 << 10, "steps of work"}
)

// of returns the limit for a file of size bytes.
func (l limit) of(size int64) uint64 { return uint64(l.base + l.perByte*float64(size)) }

// Limits of one input, far above those of real machines.
const (
	maxGPUs     = 4096
	maxTotals   = 1 << 14
	maxOrdinals = 256     // per process
	maxText     = 4 << 10 // bytes of a name or a warning
	maxEndings  = 1 << 10 // warnings of the last snapshot; the ledger has at most 257
)

var errTooMany = &LimitError{"one of its inputs exceeds any real machine, so it is damaged or forged"}

// LimitError means that reading stopped at a limit.
type LimitError struct{ text string }

func (e *LimitError) Error() string { return e.text }

// exceeded returns the error for a capture that exceeds a limit.
func (l limit) exceeded(size int64) error {
	return &LimitError{fmt.Sprintf("it has more than %d %s: no real capture of %d bytes has that many, so it is damaged or forged", l.of(size), l.what, size)}
}

// clean makes a file's text safe to print. It does not change text that vramprof wrote, if the
// tracer cleaned it too.
func clean(b []byte) string { return untrusted.Clean(string(b[:min(len(b), maxText)])) }
