// SPDX-License-Identifier: Apache-2.0

package report

func Magnitude(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

func Minus(a, b uint64) uint64 {
	if a < b {
		return 0
	}
	return a - b
}
