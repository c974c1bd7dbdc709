// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"github.com/vramprof/vramprof/tracer/capture/internal/wire"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func nodeOf(g *ledger.GPU) uint32 {
	if !g.HasNode {
		return 0
	}
	return g.Node + 1
}

func systemInput(in *ledger.SystemReading) *wire.Input {
	m := &wire.System{Pid: in.PID, Time: in.Time, Cut: in.Cut}
	for _, on := range in.On {
		m.Uuid, m.Bytes = append(m.Uuid, []byte(on.UUID)), append(m.Bytes, on.Bytes)
	}
	return &wire.Input{What: &wire.Input_System{System: m}}
}

func systemOf(m *wire.System) (ledger.SystemReading, error) {
	in := ledger.SystemReading{PID: m.GetPid(), Time: m.GetTime(), Cut: m.GetCut()}
	if len(m.GetUuid()) != len(m.GetBytes()) {
		return in, errColumns
	}
	if len(m.GetUuid()) > maxGPUs {
		return in, errTooMany
	}
	for i, uuid := range m.GetUuid() {
		in.On = append(in.On, ledger.SystemOn{UUID: clean(uuid), Bytes: m.Bytes[i]})
	}
	return in, nil
}
