// SPDX-License-Identifier: Apache-2.0

package format

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// Join joins the parts that are not empty with blanks.
func Join(parts ...string) string {
	var kept []string
	for _, s := range parts {
		if s != "" {
			kept = append(kept, s)
		}
	}
	return strings.Join(kept, " ")
}

// SignedBytes returns "3.00 GiB" or "-3.00 GiB".
func SignedBytes(bytes int64) string {
	if bytes < 0 {
		return "-" + Bytes(-uint64(bytes))
	}
	return Bytes(uint64(bytes))
}

// Bytes returns a size in IEC units with three digits: "1.95 GiB".
func Bytes(n uint64) string { return humanize.IBytesN(n, 3) }

// Share returns a part of a whole: "83.3%", "less than 0.1%", "0%" of nothing.
func Share(part, whole uint64) string {
	switch x := 100 * float64(part) / float64(max(whole, 1)); {
	case part == 0:
		return "0%"
	case x < 0.1:
		return "less than 0.1%"
	default:
		return fmt.Sprintf("%.1f%%", x)
	}
}

// Difference returns "+3.00 GiB", "-3.00 GiB" or "0 B".
func Difference(n int64) string {
	switch {
	case n > 0:
		return "+" + Bytes(uint64(n))
	case n < 0:
		return "-" + Bytes(-uint64(n))
	}
	return Bytes(0)
}

// Count returns "1 allocation", "4,312 allocations", "2 processes", "3 branches", "4 libraries".
func Count(n uint64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	switch {
	case strings.HasSuffix(noun, "s") || strings.HasSuffix(noun, "ch") || strings.HasSuffix(noun, "sh") || strings.HasSuffix(noun, "x"):
		noun += "e"
	case strings.HasSuffix(noun, "ry"):
		noun = strings.TrimSuffix(noun, "y") + "ie"
	}
	return humanize.Comma(int64(n)) + " " + noun + "s"
}

// Span returns a duration of ns nanoseconds in its two largest units: 2d4h, 3h05m, 2m12s, 8.5s,
// 350ms, 90µs, 0ms.
func Span(ns uint64) string {
	d := time.Duration(min(ns, 1<<62))
	day := 24 * time.Hour
	switch {
	case d >= day:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d >= 10*time.Second:
		return fmt.Sprintf("%ds", d/time.Second)
	case d >= time.Second:
		return fmt.Sprintf("%d.%ds", d/time.Second, d%time.Second/(100*time.Millisecond))
	case d > 0 && d < time.Millisecond:
		return fmt.Sprintf("%dµs", max(d/time.Microsecond, 1))
	}
	return fmt.Sprintf("%dms", d/time.Millisecond)
}

// Digits returns s if it is a decimal number, else "".
func Digits(s string) string {
	if _, err := strconv.ParseUint(s, 10, 63); err != nil {
		return ""
	}
	return s
}

// Number returns three significant digits: "1,234", "12.3", "0.012".
func Number(x float64) string {
	size := math.Abs(x)
	switch {
	case x == 0:
		return "0"
	case size >= 99.95:
		return humanize.Comma(int64(math.Round(x)))
	case size >= 9.995:
		return fmt.Sprintf("%.1f", x)
	case size >= 0.1:
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%.2g", x)
}
