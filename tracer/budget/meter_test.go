// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"math"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

const second = uint64(time.Second)

// played adds readings of one process, one per second, with so many more reports in each. The first
// is that of a second before.
func played(m *Meter, pid uint32, from uint64, reports ...uint64) {
	var c Count
	for i, n := range reports {
		c.Reports += n
		m.Add((from+uint64(i))*second, map[uint32]Count{pid: c})
	}
}

func TestSharesAreReportsTimesThePriceOfOne(t *testing.T) {
	var m Meter
	played(&m, 7, 1, 10_000)
	if got := m.Cost(); got != (ledger.TensorCost{}) {
		t.Errorf("without a price: %+v", got)
	}
	m = Meter{}
	m.SetPrice(time.Microsecond) // 4 µs with the booking
	played(&m, 7, 1, 10_000, 30_000)
	want := ledger.TensorCost{
		Price:   4000,
		Session: ledger.CostShare{PID: 7, Reports: 40_000, Time: 160_000_000, Span: 2 * second},
		Highest: ledger.CostShare{PID: 7, Reports: 40_000, Time: 160_000_000, Span: 2 * second},
	}
	want.Latest = want.Highest
	if got := m.Cost(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if share, rate := want.Session.Share(), want.Session.PerSecond(); share != 0.08 || rate != 20_000 {
		t.Errorf("share %v, %v reports a second", share, rate)
	}
}

func TestStacksCostMoreThanReports(t *testing.T) {
	var m Meter
	m.SetPrice(time.Microsecond)
	if got, want := m.TimeOf(Count{Reports: 10, Stacks: 3}), 40*time.Microsecond+3*stackPrice; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTheHighestShareIsThatOfTenSeconds(t *testing.T) {
	var m Meter
	m.SetPrice(2 * time.Microsecond)
	rates := make([]uint64, 60)
	for i := 30; i < 40; i++ {
		rates[i] = 18_750 // 15 %
	}
	played(&m, 7, 1, rates...)
	c := m.Cost()
	if got := c.Highest.Share(); math.Abs(got-0.15) > 1e-9 {
		t.Errorf("highest %v, want 0.15", got)
	}
	if got := c.Session.Share(); math.Abs(got-0.15*10/60) > 1e-9 {
		t.Errorf("of the session %v", got)
	}
	if got := c.Latest.Share(); got != 0 {
		t.Errorf("latest %v, want none", got)
	}
}

func TestTheBusiestProcessIsNamedAlsoAfterItsEnd(t *testing.T) {
	var m Meter
	m.SetPrice(2 * time.Microsecond)
	m.Add(1*second, map[uint32]Count{7: {}, 8: {}})
	m.Add(2*second, map[uint32]Count{7: {Reports: 1000}, 8: {Reports: 2000}})
	m.Add(3*second, map[uint32]Count{7: {Reports: 1100}})
	m.Add(4*second, map[uint32]Count{7: {Reports: 50}}) // another process
	for what, share := range map[string]ledger.CostShare{"session": m.Cost().Session, "highest": m.Cost().Highest} {
		if share.PID != 8 || share.Reports != 2000 {
			t.Errorf("%s: %+v", what, share)
		}
	}
	if got := m.Cost().Latest; got.PID != 7 || got.Reports != 50 {
		t.Errorf("latest: %+v", got)
	}
}

func TestReadingsThatFollowAtOnceAreIgnored(t *testing.T) {
	var m Meter
	m.SetPrice(2 * time.Microsecond)
	m.Add(1*second, map[uint32]Count{7: {}})
	m.Add(1*second+1, map[uint32]Count{7: {Reports: 1 << 40}})
	if got := m.Cost().Highest; got.PID != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestAShortTimeCountsAsASecond(t *testing.T) {
	var m Meter
	m.SetPrice(2 * time.Microsecond)
	m.Add(uint64(leastStep), map[uint32]Count{7: {Reports: 10_000}})
	if got := m.Cost().Highest.Share(); got != 0.08 {
		t.Errorf("got %v, want 0.08", got)
	}
}
