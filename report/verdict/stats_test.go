// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"math"
	"testing"
)

func near(got, want, error float64) bool { return math.Abs(got-want) <= error }

// The values are those of R: Kendall::MannKendall, trend::sens.slope and pbinom have the formulas,
// t.test the intervals.
func TestMannKendallTellsATrendFromNone(t *testing.T) {
	for _, c := range []struct {
		y    []float64
		want float64
	}{
		{[]float64{1, 2, 3, 4, 5, 6, 7, 8}, (28 - 1) / math.Sqrt(8*7*21/18.0)},
		{[]float64{8, 7, 6, 5, 4, 3, 2, 1}, (-28 + 1) / math.Sqrt(8*7*21/18.0)},
		{[]float64{5, 5, 5, 5, 5}, 0},
		{[]float64{1, 1, 2, 2, 3}, (8 - 1) / math.Sqrt((5*4*15-2*2*1*9)/18.0)},
		{[]float64{1, 2, 3}, 0},
		{nil, 0},
	} {
		if got := mannKendall(c.y); !near(got, c.want, 1e-9) {
			t.Errorf("%v: %v, want %v", c.y, got, c.want)
		}
	}
}

func TestTheilSenSlopeIgnoresOutliers(t *testing.T) {
	y := []float64{0, 3, 6, 1000, 12, 15, 18, 21, 24, 27}
	got := theilSen(y)
	if got.Value != 3 || got.Low > 3 || got.High < 3 || got.Low < 0 || got.High > 200 {
		t.Errorf("%+v, want 3", got)
	}
	if got := theilSen([]float64{4, 4, 4}); got != (Rate{}) {
		t.Errorf("%+v, want 0", got)
	}
	if got := theilSen([]float64{4}); got != (Rate{}) {
		t.Errorf("of one value: %+v", got)
	}
}

func TestMeanHasStudentsInterval(t *testing.T) {
	got := mean([]float64{2, 4, 4, 4, 5, 5, 7, 9})
	if got.Value != 5 || !near(got.Low, 5-2.36*math.Sqrt(32.0/7/8), 1e-9) || !near(got.High, 5+2.36*math.Sqrt(32.0/7/8), 1e-9) {
		t.Errorf("%+v", got)
	}
	if got := mean([]float64{3}); got.Value != 3 || !math.IsInf(got.High, 1) {
		t.Errorf("of one value: %+v", got)
	}
}

func TestTheMedianIgnoresOutliers(t *testing.T) {
	if got := middle([]float64{5, 1, 4, 1000, 2, 3, 6, 7, 8, 9, 0}); got != (Rate{5, 2, 9}) {
		t.Errorf("%+v", got)
	}
	if got := middle(nil); got != (Rate{}) {
		t.Errorf("of nothing: %+v", got)
	}
}

func TestAtMostIsTheBinomialDistribution(t *testing.T) {
	for _, c := range []struct{ k, n, p, want float64 }{
		{0, 10, 0.5, 1.0 / 1024}, {3, 10, 0.5, 176.0 / 1024}, {10, 10, 0.5, 1}, {2, 5, 0, 1}, {2, 5, 1, 0}, {450, 1000, 0.5, 0.0008653}, {4500, 10000, 0.46, 0.0226},
	} {
		if got := atMost(c.k, c.n, c.p); !near(got, c.want, 0.001+c.want/100) {
			t.Errorf("at most %v of %v: %v, want %v", c.k, c.n, got, c.want)
		}
	}
}

func TestTextsOfFigures(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{rateText(Rate{1.5 * mib / 60, 1.25 * mib / 60, 12.34 * mib / 60}, 11e9), "+1.50 MiB/min over 11s (1.25 to 12.3 MiB/min)"},
		{rateText(Rate{20000 * mib / 60, 0, 0.00123 * mib / 60}, 90e9), "+20,000 MiB/min over 1m30s (0 to 0.0012 MiB/min)"},
		{rateText(Rate{mib, 0, math.Inf(1)}, 25e8), "+60.0 MiB/min over 2.5s"},
		{rateText(Rate{mib, mib, mib}, 11e9), "+60.0 MiB/min over 11s"},
		{rateText(Rate{100 * mib, 90 * mib, 110 * mib}, 134e6), "+13.4 MiB over 134ms"},
		{percent(0), "0%"}, {percent(0.0001), "less than 0.1%"}, {percent(0.05), "5.0%"}, {percent(0.5), "50%"}, {percent(0.9999), "99.9%"}, {percent(1), "100%"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
