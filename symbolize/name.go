// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ianlancetaylor/demangle"
)

const (
	maxName    = 4 << 10 // bytes of a name that leaves the package
	maxMangled = 4 << 10 // longer mangled names stay mangled: the time goes with the square of the length
)

// Clean makes a name from a traced process fit for terminals and files: it
// drops control and formatting characters (escape sequences, bidirectional
// overrides, zero-width characters), line separators and invalid UTF-8, and cuts
// the name off at 4 KiB.
func Clean(s string) string {
	clean := len(s) <= maxName
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
		if b.Len()+utf8.RuneLen(r) > maxName-len(ellipsis) {
			b.WriteString(ellipsis)
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}

// readable returns the name of a symbol as people write it: C++ and Rust
// demangled, and without the suffixes of parts that the compiler split off.
func readable(symbol string) string {
	if len(symbol) > maxMangled {
		return Clean(symbol)
	}
	const longest = 13 // as a power of two; more than Clean leaves
	name, err := demangle.ToString(symbol, demangle.NoClones, demangle.MaxLength(longest))
	if err != nil {
		name = clone.ReplaceAllString(symbol, "")
	}
	return Clean(name)
}

// clone is the end of "train.cold" and "copy.constprop.0.isra.0".
var clone = regexp.MustCompile(`(?:\.(?:cold|part|isra|constprop|lto_priv|localalias|llvm)(?:\.\d+)?)+$`)

// unversioned cuts the version off a symbol: "cudaMalloc@@libcudart.so.12".
func unversioned(symbol string) string {
	if i := strings.IndexByte(symbol, '@'); i > 0 {
		return symbol[:i]
	}
	return symbol
}
