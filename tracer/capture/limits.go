// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"fmt"

	"github.com/vramprof/vramprof/tracer/ledger"
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

// limits returns the ledger's limits for this file.
func (r *Reader) limits() ledger.ReadLimits {
	if r.options.Unlimited {
		return ledger.ReadLimits{}
	}
	return ledger.ReadLimits{
		Live: liveLimit.of(r.size), Sites: siteLimit.of(r.size), Processes: processLimit.of(r.size), Tensors: tensorsLimit.of(r.size), Steps: stepLimit.of(r.size),
		Reached: func(which ledger.Limit) {
			r.Stop(map[ledger.Limit]limit{
				ledger.LimitLive: liveLimit, ledger.LimitSites: siteLimit, ledger.LimitProcesses: processLimit,
				ledger.LimitTensors: tensorsLimit, ledger.LimitSteps: stepLimit,
			}[which].exceeded(r.size))
		},
	}
}

// reached returns the error of the limit that was reached, or nil.
func (r *Reader) reached() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopped
}

// Stop makes all playing that goes on, and all further playing, fail with an error. It may be called
// from any goroutine.
func (r *Reader) Stop(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = cmp.Or(r.stopped, err)
}
