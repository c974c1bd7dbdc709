// SPDX-License-Identifier: Apache-2.0

package report

// Magnitude returns the absolute value of n.
func Magnitude(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

// Minus returns a - b, or 0 if b is larger.
func Minus(a, b uint64) uint64 {
	if a < b {
		return 0
	}
	return a - b
}
