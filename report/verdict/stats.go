// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"math"
	"slices"
)

// mannKendall returns the normal score of the test for a trend: above 1.96 the values rise, with an
// error probability of 2.5 %. Ties are accounted for. Fewer than 4 values prove nothing.
func mannKendall(y []float64) float64 {
	n := len(y)
	if n < 4 {
		return 0
	}
	s, ties := 0, map[float64]int{}
	for i, a := range y {
		ties[a]++
		for _, b := range y[i+1:] {
			switch {
			case b > a:
				s++
			case b < a:
				s--
			}
		}
	}
	term := func(n int) float64 { return float64(n) * float64(n-1) * float64(2*n+5) }
	variance := term(n)
	for _, t := range ties { // whole numbers: their order does not change the sum
		variance -= term(t)
	}
	variance /= 18
	switch {
	case s == 0 || variance <= 0:
		return 0
	case s > 0:
		return float64(s-1) / math.Sqrt(variance)
	}
	return float64(s+1) / math.Sqrt(variance)
}

// theilSen returns the median of the slopes between any two values, and its 95 % interval by their
// ranks.
func theilSen(y []float64) Rate {
	x := make([]float64, len(y))
	for i := range x {
		x[i] = float64(i)
	}
	return theilSenAt(x, y)
}

// theilSenAt is theilSen for values at rising x.
func theilSenAt(x, y []float64) Rate {
	n := len(y)
	if n < 2 {
		return Rate{}
	}
	slopes := make([]float64, 0, n*(n-1)/2)
	for i := range y {
		for k := i + 1; k < n; k++ {
			slopes = append(slopes, (y[k]-y[i])/(x[k]-x[i]))
		}
	}
	slices.Sort(slopes)
	m := len(slopes)
	half := 1.96 * math.Sqrt(float64(n)*float64(n-1)*float64(2*n+5)/18) / 2
	low := max(int(math.Floor(float64(m)/2-half)), 0)
	high := min(int(math.Ceil(float64(m)/2+half)), m-1)
	return Rate{medianOf(slopes), slopes[low], slopes[high]}
}

// medianOf returns the median of a sorted list; 0 if it is empty.
func medianOf(sorted []float64) float64 {
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func median(list []float64) float64 {
	sorted := slices.Clone(list)
	slices.Sort(sorted)
	return medianOf(sorted)
}

// middle returns the median of independent values, and its 95 % interval by their ranks.
func middle(y []float64) Rate {
	sorted := slices.Clone(y)
	slices.Sort(sorted)
	n := float64(len(sorted))
	if n == 0 {
		return Rate{}
	}
	half := 0.98 * math.Sqrt(n)
	low, high := max(int(math.Floor(n/2-half)), 0), min(int(math.Ceil(n/2+half)), len(sorted)-1)
	return Rate{medianOf(sorted), sorted[low], sorted[high]}
}

// Quantile 0.975 of Student's distribution by degrees of freedom, from 1 on.
var student = [...]float64{12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13}

// mean returns the mean of independent values, and its 95 % interval.
func mean(y []float64) Rate {
	n := float64(len(y))
	if n == 0 {
		return Rate{}
	}
	sum, squares := 0.0, 0.0
	for _, x := range y {
		sum += x
	}
	m := sum / n
	for _, x := range y {
		squares += (x - m) * (x - m)
	}
	if len(y) < 2 {
		return Rate{m, 0, math.Inf(1)}
	}
	half := student[min(len(y)-2, len(student)-1)] * math.Sqrt(squares/(n-1)/n)
	return Rate{m, m - half, m + half}
}

// atMost returns the probability of at most k of n events, each with probability p.
func atMost(k, n, p float64) float64 {
	switch {
	case p <= 0 || k >= n:
		return 1
	case p >= 1:
		return 0
	case n > 1000: // by the normal distribution
		return 0.5 * math.Erfc((n*p-k-0.5)/math.Sqrt(2*n*p*(1-p)))
	}
	gamma := func(x float64) float64 { v, _ := math.Lgamma(x + 1); return v }
	sum := 0.0
	for i := 0.0; i <= k; i++ {
		sum += math.Exp(gamma(n) - gamma(i) - gamma(n-i) + i*math.Log(p) + (n-i)*math.Log(1-p))
	}
	return min(sum, 1)
}
