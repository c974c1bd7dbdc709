// SPDX-License-Identifier: Apache-2.0

// Package duration parses times as users write them.
package duration

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// Parse reads a Go duration or plain seconds; "" is 0, no limit.
func Parse(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(seconds) || math.Abs(seconds) > math.MaxInt64/float64(time.Second) {
			return 0, fmt.Errorf("%q is not a duration (30s, 10m, or plain seconds)", text)
		}
		d = time.Duration(seconds * float64(time.Second))
	}
	if d <= 0 {
		return 0, fmt.Errorf("the duration %q is not positive", text)
	}
	return d, nil
}
