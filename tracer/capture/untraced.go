// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"github.com/vramprof/vramprof/tracer/capture/internal/wire"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// maxStayed bounds the allocators in one input: a session has at most as many on GPUs.
const maxStayed = 2048

func untracedOf(in *ledger.Untraced) *wire.Untraced {
	m := &wire.Untraced{Pid: in.PID, From: in.From, To: in.To, Open: in.Open}
	for _, s := range in.Stayed[:min(len(in.Stayed), maxStayed)] {
		m.Stayed = append(m.Stayed, &wire.Stayed{Pid: s.PID, Device: s.Device, Small: s.Small, Large: s.Large})
	}
	return m
}

// setUntraced books a time in which tensors were not traced. In captures of older versions nothing
// is known of it, so that all blocks end.
func setUntraced(m *wire.Untraced, books ledger.Books) {
	in := ledger.Untraced{PID: m.GetPid(), From: m.GetFrom(), To: m.GetTo(), Open: m.GetOpen()}
	for _, s := range m.GetStayed()[:min(len(m.GetStayed()), maxStayed)] {
		in.Stayed = append(in.Stayed, ledger.Stayed{PID: s.GetPid(), Device: s.GetDevice(), Small: s.GetSmall(), Large: s.GetLarge()})
	}
	books.Tell(in)
}
