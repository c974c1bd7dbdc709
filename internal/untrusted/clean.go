// SPDX-License-Identifier: Apache-2.0

package untrusted

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxName is the longest string that Clean returns, in bytes.
const MaxName = 4 << 10

// Clean makes a name from a traced process safe for terminals and files. It drops control and
// formatting characters (escape sequences, bidirectional overrides, zero-width characters), line
// separators and invalid UTF-8, and truncates the name to 4 KiB.
func Clean(s string) string {
	clean := len(s) <= MaxName
	for i := 0; clean && i < len(s); i++ {
		clean = s[i] >= ' ' && s[i] < 0x7f
	}
	if clean {
		return s
	}
	const ellipsis = "…"
	var b strings.Builder
	for i, r := range s {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
				continue
			}
		}
		if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			continue
		}
		if b.Len()+utf8.RuneLen(r) > MaxName-len(ellipsis) {
			b.WriteString(ellipsis)
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}
