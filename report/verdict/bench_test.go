// SPDX-License-Identifier: Apache-2.0

package verdict

import "testing"

// BenchmarkOf judges 10,000 sites of all sorts, and their lines.
func BenchmarkOf(b *testing.B) {
	p := newProgram(1e7, 1)
	queues := make([]fifo, 10000)
	p.train(100*len(queues), func(i int) {
		q := &queues[p.rng.IntN(len(queues))]
		if q.p == nil {
			*q = fifo{p: p, line: uint64(1 + i%len(queues)), depth: 1 << p.rng.IntN(10)}
		}
		q.put(1 + p.rng.Uint64N(batch))
	})
	s := p.snapshot()
	b.ReportAllocs()
	for b.Loop() {
		JudgeLines(s, Judge(s, lines{}))
	}
}
