// SPDX-License-Identifier: Apache-2.0

package gpuusage

import (
	"context"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// NVML is what the driver reports about GPUs and processes. Calls with a context may take as long
// as it lasts; the others return at once.
type NVML interface {
	GPUs(ctx context.Context) ([]ledger.GPU, error)
	Usage(ctx context.Context) ([]ledger.Usage, error)
	// Suspend closes all that is open of the driver until GPUs or Usage are called.
	Suspend(ctx context.Context) error
	// ResolveOrdinals returns the UUID of each CUDA ordinal of a process with this environment.
	ResolveOrdinals(environ []string, gpus []ledger.GPU) []string
	// GPUsByMinor returns the GPUs with these device nodes, and false if some are not among gpus.
	GPUsByMinor(minors []uint32, gpus []ledger.GPU) ([]ledger.GPU, bool)
}
