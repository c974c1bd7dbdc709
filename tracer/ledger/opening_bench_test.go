// SPDX-License-Identifier: Apache-2.0

package ledger

import "testing"

// counted counts the bytes of an opening.
type counted struct{ bytes, pieces int }

func (c *counted) Apply(*Event) {}
func (c *counted) Tell(in Input) {
	if x, ok := in.(Carried); ok {
		c.pieces++
		c.bytes += len(x.Data) + 8*len(x.Stacks)
	}
}

// largeBooks returns books of 4 processes with so many live allocations and sites.
func largeBooks(live, sites int) *Ledger {
	l := New(Options{Begin: 1})
	for i := range live {
		n := uint64(i)
		l.Apply(&Event{
			Op: Alloc, Kind: Device, PID: uint32(1 + i%4), Time: 100 + 1000*n, Address: 0x7f0000000000 + n*0x200000, Size: 512 * (1 + n%100),
			Stack: 1 + n*0x9e3779b97f4a7c15%uint64(sites), API: "cudaMalloc",
		})
	}
	return l
}

func BenchmarkOpening(b *testing.B) {
	l := largeBooks(1e6, 10_000/4)
	b.ResetTimer()
	for b.Loop() {
		var c counted
		l.Opening(&c)
		b.ReportMetric(float64(c.bytes), "bytes")
		b.ReportMetric(float64(c.pieces), "pieces")
	}
}

// BenchmarkFromOpening makes books from an opening.
func BenchmarkFromOpening(b *testing.B) {
	l := largeBooks(1e6, 10_000/4)
	b.ResetTimer()
	for b.Loop() {
		opened(l)
	}
}
