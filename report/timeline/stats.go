// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"math/bits"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// SizeBuckets is the number of size buckets, one per power of two.
const SizeBuckets = 64

// Bucket counts allocations of at least 2^n and less than 2^(n+1) bytes.
type Bucket struct{ Count, Bytes uint64 }

// Sizes counts all allocations of a session by size.
type Sizes struct {
	Driver  [SizeBuckets]Bucket
	Tensors [SizeBuckets]Bucket // PyTorch's blocks, sampled or not

	latest map[allocator][]ledger.ClassTotals
}

// Since returns what was allocated after before, which are the Sizes of an earlier moment of the
// same session.
func (s *Sizes) Since(before *Sizes) *Sizes {
	out := &Sizes{}
	for i := range SizeBuckets {
		out.Driver[i], out.Tensors[i] = s.Driver[i].minus(before.Driver[i]), s.Tensors[i].minus(before.Tensors[i])
	}
	return out
}

func (b Bucket) minus(a Bucket) Bucket {
	return Bucket{b.Count - min(a.Count, b.Count), b.Bytes - min(a.Bytes, b.Bytes)}
}

type allocator struct {
	pid    uint32
	device int32
}

// event counts a driver allocation.
func (s *Sizes) event(e *ledger.Event) {
	if e.Op == ledger.Alloc && e.Kind != ledger.Tensor && e.Kind != ledger.Imported && e.Size != ledger.UnknownSize {
		b := &s.Driver[bucketOf(e.Size)]
		b.Count++
		b.Bytes += e.Size
	}
}

// tensors takes a reading of an allocator's totals, which only grow until its process ends.
func (s *Sizes) tensors(t *ledger.TensorTotals) {
	if s.latest == nil {
		s.latest = map[allocator][]ledger.ClassTotals{}
	}
	key := allocator{t.PID, t.Device}
	before := s.latest[key]
	for class := range t.Classes {
		if class < len(before) && t.Classes[class].Allocs < before[class].Allocs {
			before = nil // a new process with that pid
			break
		}
	}
	for class, now := range t.Classes {
		var old ledger.ClassTotals
		if class < len(before) {
			old = before[class]
		}
		b := &s.Tensors[bucketOf(classSize(class))]
		b.Count += now.Allocs - old.Allocs
		b.Bytes += now.AllocBytes - old.AllocBytes
	}
	s.latest[key] = t.Classes
}

// bucketOf returns the bucket of a size; 0 for size 0.
func bucketOf(size uint64) int { return max(bits.Len64(size)-1, 0) }

// classSize returns the least size in a size class of tensors.
func classSize(class int) uint64 {
	if class == 0 {
		return 256
	}
	return 512 << ((class - 1) / 4)
}
