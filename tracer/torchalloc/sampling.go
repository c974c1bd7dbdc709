// SPDX-License-Identifier: Apache-2.0

package torchalloc

import (
	"fmt"
	"math"
	"time"

	"github.com/cilium/ebpf"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// classBound returns the least size of a size class, in bytes; see ledger.SizeClass.
func classBound(class int) float64 {
	if class == 0 {
		return 0
	}
	doubling, quarter := (class-1)/4, (class-1)%4
	return math.Ldexp(512, doubling) * (1 + float64(quarter)/4)
}

// sampling returns the probability of each size class to be sampled, so that on average one block
// in mean bytes is. Sampling is Poisson over bytes at the middle of the class; classes from mean on
// are taken whole.
func sampling(mean uint64) []float64 {
	list := make([]float64, bpf.SizeClasses)
	for class := range list {
		from, to := classBound(class), classBound(class+1)
		list[class] = 1
		if mean > 0 && to <= float64(mean) {
			list[class] = -math.Expm1(-(from + to) / 2 / float64(mean))
		}
	}
	return list
}

// windowSamples converts a limit of samples per second to one of the kernel half's windows, which
// saves several of them: no larger one has room.
func windowSamples(perSecond uint32) uint32 {
	const most = 1 << 24
	const _ = uint32(most * bpf.SavedWindows) // the kernel half's sum of saved windows
	return uint32(min(uint64(perSecond)*bpf.SampleWindow/uint64(time.Second), most))
}

// totalsStep is by how many bytes an allocator's totals may change before an event tells them,
// where tensors are sampled. Of more than 256 MiB allocated it is one in 128: see totals_drifted of
// bpf/allocator_totals.h.
const totalsStep = 2 << 20

// Limit tells the kernel half, before its programs are loaded, how it samples: one block in sample
// bytes on average, all for 0, and at most limit blocks per second and allocator, 0 for no limit.
func Limit(spec *ebpf.CollectionSpec, sample uint64, limit uint32) error {
	if sample > 0 { // else the kernel half reports each change
		if err := spec.Variables["totals_step"].Set(uint64(totalsStep)); err != nil {
			return fmt.Errorf("set the step of totals: %w", err)
		}
	}
	if err := spec.Variables["window_samples"].Set(windowSamples(limit)); err != nil {
		return fmt.Errorf("set the limit of samples: %w", err)
	}
	return nil
}

// SetSampling tells the kernel half and the books how each size class is sampled. It comes before
// the first event, with what Limit was told.
func (a *Allocators) SetSampling(b ledger.Books, sample uint64, limit uint32) error {
	p := sampling(sample)
	for class, likely := range p {
		threshold := uint32(bpf.SampleAlways)
		if likely < 1 {
			threshold = uint32(likely * (1 << 32))
		}
		if err := a.Maps["sample_classes"].Put(uint32(class), threshold); err != nil {
			return fmt.Errorf("set the sampling of tensors: %w", err)
		}
	}
	b.Tell(ledger.Sampling(p))
	b.Tell(ledger.SampleRate{Mean: sample, Limit: limit})
	return nil
}
