// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"math/rand/v2"
	"testing"

	"github.com/vramprof/vramprof/tracer/holders/peek"
)

// manyJob has so many tensors in a list, in another order than their addresses, among objects that
// hold none, and the blocks of an allocator that they are in.
func manyJob(tensors int) (*peek.Image, []Range) {
	m := newSynthetic()
	var list, others []uint64
	var blocks []Range
	id, value := m.newStr("id"), m.newStr("value")
	dice := rand.New(rand.NewPCG(1, 1))
	order := dice.Perm(tensors)
	for i, k := range order {
		address, bytes := uint64(0x7d0000000000)+uint64(k)<<13, uint64(dice.IntN(5000)+1)
		list = append(list, m.newTensor(address, bytes))
		blocks = append(blocks, Range{Address: address, Bytes: (bytes + blockStep - 1) &^ (blockStep - 1)})
		if i%2 == 0 {
			others = append(others, m.newObject(m.newDict(id, m.newList(), value, id)))
		}
	}
	dice.Shuffle(tensors, func(i, j int) { list[i], list[j] = list[j], list[i] })
	return m.finish(m.newStr("live"), m.newList(list...), m.newStr("others"), m.newList(others...)), blocks
}

func BenchmarkWalkManyTensors(b *testing.B) {
	m, blocks := manyJob(100_000)
	b.ReportAllocs()
	before, n := cpuTime(), 0
	for b.Loop() {
		n++
		if r := walkImage(b, m, Options{Addresses: blocks}); len(r.Storages) != 100_000 {
			b.Fatal(len(r.Storages))
		}
	}
	b.ReportMetric(float64((cpuTime()-before).Milliseconds())/float64(n), "cpu-ms/op")
}
