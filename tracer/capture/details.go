// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"github.com/vramprof/vramprof/tracer/capture/internal/wire"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// addDetails appends the details of the call that is the last of the others. The columns begin with
// the first call that has any, so that captures without them are as those of older versions.
func addDetails(m *wire.Inputs, k *call) {
	if len(m.CallDetail) == 0 {
		if k.detail == 0 {
			return
		}
		before := len(m.CallOp) - 1
		m.CallDetail, m.CallStream, m.CallPool = append(m.CallDetail, make([]uint32, before)...), append(m.CallStream, make([]uint64, before)...), append(m.CallPool, make([]uint64, before)...)
	}
	m.CallDetail, m.CallStream, m.CallPool = append(m.CallDetail, uint32(k.detail)), append(m.CallStream, k.stream), append(m.CallPool, k.pool)
}

// hasDetails reports whether the columns of n calls have all details or none.
func hasDetails(m *wire.Inputs, n int) bool {
	d := len(m.CallDetail)
	return (d == n || d == 0) && len(m.CallStream) == d && len(m.CallPool) == d
}

// setDetails sets the details of an event of the ith call.
func setDetails(m *wire.Inputs, i int, e *ledger.Event) {
	if i < len(m.CallDetail) {
		e.Detail = ledger.Detail(m.CallDetail[i]) & ledger.AllDetails
		e.Stream, e.Pool = m.CallStream[i], m.CallPool[i]
	}
}

// pytorchInput returns what is known of a PyTorch as a message; pytorchOf is the inverse.
func pytorchInput(in *ledger.PyTorch) *wire.Input {
	return &wire.Input{What: &wire.Input_Pytorch{Pytorch: &wire.PyTorch{
		Pid: in.PID, Time: in.Time, Version: []byte(in.Version), Settings: []byte(in.Settings), InUse: in.InUse,
	}}}
}

func pytorchOf(m *wire.PyTorch) ledger.PyTorch {
	return ledger.PyTorch{PID: m.GetPid(), Time: m.GetTime(), Version: clean(m.GetVersion()), Settings: clean(m.GetSettings()), InUse: m.GetInUse()}
}
