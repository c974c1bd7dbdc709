// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strings"
	"unicode/utf8"

	"github.com/vramprof/vramprof/internal/untrusted"
)

// maxValue limits the bytes of a value: the longest name in Kubernetes.
const maxValue = 253

// clean makes a value safe for terminals and labels. Truncated values end in "…".
func clean(s string) string { return cut(s, maxValue) }

func cut(s string, limit int) string {
	const ellipsis = "…"
	if len(s) > 8*limit {
		s = s[:8*limit]
	}
	if s = strings.TrimSpace(untrusted.Clean(s)); len(s) <= limit {
		return s
	}
	n := limit - len(ellipsis)
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + ellipsis
}
