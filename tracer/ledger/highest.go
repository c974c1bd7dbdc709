// SPDX-License-Identifier: Apache-2.0

package ledger

// setHigh sets an allocator to its state at the highest.
func (t *tensors) setHigh(p *process) {
	if t.atHigh.number == p.high.number {
		t.now = t.atHigh.now
	}
	t.reading, t.since, t.changes = tensorReading{taken: true}, sampleSince{}, nil
}

// withPast gives live sites what else a snapshot of the same books has of them.
func withPast(live, all []Site) []Site {
	type key struct {
		stack   uint64
		process int
		device  int32
		kind    Kind
		api     string
	}
	of := func(x *Site) key { return key{x.Stack, x.Process, x.Device, x.Kind, x.API} }
	at := make(map[key]int, len(all))
	for i := range all {
		at[of(&all[i])] = i
	}
	for i := range live {
		x := &live[i]
		if k, ok := at[of(x)]; ok {
			past := all[k]
			past.LiveObjects, past.LiveBytes, past.Tensors, past.Asleep = x.LiveObjects, x.LiveBytes, x.Tensors, x.Asleep
			*x = past
		}
	}
	return live
}
